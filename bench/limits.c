// What this CPU can do at most, to hold figures against: reading memory through 4 KiB and 2 MiB pages, float FMA, int8 products.
// build: cc -I. -O3 -march=native -pthread bench/limits.c -o limits     (on ARM: -mcpu=native)
// run:   limits [THREADS] [SECONDS_A_TEST] [MIB_OF_MEMORY]     prints lines "NAME THREADS VALUE" for 1..THREADS; GB/s or Gop/s
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench/peak_loops.h"

enum { kMostThreads = 64 };
static double seconds_a_test = 0.4;
static pthread_barrier_t start_line;

typedef struct {
  double (*compute)(void);  // or, where null, reading:
  const char* memory;
  size_t bytes, ahead;
  double rate;              // the answer, a second
} Job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double once(const Job* job) {
  if (job->compute) return job->compute();
  peak_read(job->memory, job->bytes, job->ahead);
  return (double)job->bytes;
}

static void* work(void* argument) {
  Job* job = argument;
  once(job);
  pthread_barrier_wait(&start_line);
  const double begin = now();
  double done = 0, passed;
  do done += once(job); while ((passed = now() - begin) < seconds_a_test);
  job->rate = done / passed;
  return 0;
}

// The best of three: the sum over the threads, in 10^9 a second.
static double best(double (*compute)(void), const char* memory, size_t bytes, size_t ahead, int threads) {
  double most = 0;
  for (int round = 0; round < 3; round++) {
    pthread_t thread[kMostThreads];
    Job job[kMostThreads];
    pthread_barrier_init(&start_line, 0, (unsigned)threads);
    const size_t share = bytes / (size_t)threads & ~(size_t)511;
    for (int i = 0; i < threads; i++) {
      job[i] = (Job){compute, memory ? memory + (size_t)i * share : 0, share, ahead, 0};
      if (pthread_create(&thread[i], 0, work, &job[i])) exit(1);
    }
    double sum = 0;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0), sum += job[i].rate;
    pthread_barrier_destroy(&start_line);
    if (sum > most) most = sum;
  }
  return most * 1e-9;
}

static void show_reading(const char* name, const char* memory, size_t bytes, int threads) {
  for (int t = 1; t <= threads; t++) {
    const double plain = best(0, memory, bytes, 0, t), asked = best(0, memory, bytes, 1024, t);
    printf("%s %d %.2f\n", name, t, plain > asked ? plain : asked);
    fflush(stdout);
  }
}

static void show_computing(const char* name, double (*compute)(void), int threads) {
  if (compute() == 0) return;
  for (int t = 1; t <= threads; t++) printf("%s %d %.1f\n", name, t, best(compute, 0, 0, 0, t)), fflush(stdout);
}

int main(int argc, char** argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > kMostThreads) return fprintf(stderr, "limits: 1 to %d threads\n", kMostThreads), 2;
  if (argc > 2) seconds_a_test = atof(argv[2]);
  const long mib = argc > 3 ? atol(argv[3]) : 1024;
  if (mib < 96) return fprintf(stderr, "limits: at least 96 MiB\n"), 2;
  const size_t memory_bytes = (size_t)mib << 20;
  for (int huge = 0; huge < 2; huge++) {
    char* memory = mmap(0, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return perror("limits: memory"), 1;
    madvise(memory, memory_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 1, memory_bytes);
    show_reading(huge ? "read_2m" : "read_4k", memory, memory_bytes, threads);
    show_reading(huge ? "read_2m_96mib" : "read_4k_96mib", memory, (size_t)96 << 20, threads);  // as large as a small model: the L3 helps
    munmap(memory, memory_bytes);
  }
  show_computing("fma_f32", peak_fma, threads);
  show_computing("int8", peak_int8, threads);
#if defined(__AMX_INT8__)
  if (syscall(SYS_arch_prctl, 0x1023, 18) == 0) show_computing("int8_amx", peak_tiles, threads);  // ARCH_REQ_XCOMP_PERM, tile data
#else
  (void)peak_tiles;
#endif
  return 0;
}
