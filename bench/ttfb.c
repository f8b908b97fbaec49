// From exec to the first byte of generated text on standard output; total time, memory and processor time: one run, one JSON line.
// build: cc -O2 ttfb.c -o ttfb
// use:   ttfb [-w] [-e] [-d FILE]... [-D] -- COMMAND ARGUMENTS...
//   -w    leading white space does not count as text          -e    let standard error through
//   -d F  drop F from the page cache first (repeatable)       -D    drop all caches first (needs root)
// private_kb (dirty pages of its own: what another such process would need again) and rss_now_kb are of the moment of the first byte,
// from smaps_rollup; -1 where they cannot be read.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + 1e-6 * (double)t.tv_nsec;
}

static int drop_file(const char* path) {
  const int f = open(path, O_RDONLY | O_CLOEXEC);
  if (f < 0) return 0;
  const int ok = fsync(f) == 0 && posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED) == 0;
  close(f);
  return ok;
}

static int drop_all(void) {
  sync();
  const int f = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
  if (f < 0) return 0;
  const int ok = write(f, "3", 1) == 1;
  close(f);
  return ok;
}

// Private dirty memory, and all that is resident, in KiB.
static void read_memory(pid_t pid, long* own, long* resident) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
  FILE* f = fopen(path, "re");
  if (!f) return;
  long kb;
  while (fgets(line, sizeof line, f)) {
    if (sscanf(line, "Rss: %ld", &kb) == 1) *resident = kb;
    if (sscanf(line, "Private_Dirty: %ld", &kb) == 1) *own = kb;
  }
  fclose(f);
}

static pid_t start(char** command, int input, int output, int errors) {
  const pid_t child = vfork();
  if (child) return child;
  dup2(input, 0);
  dup2(output, 1);
  if (!errors) dup2(input, 2);
  execvp(command[0], command);
  _exit(127);
}

static void print_text(const char* p, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const unsigned char c = (unsigned char)p[i];
    if (c == '"' || c == '\\') printf("\\%c", c);
    else if (c < 32) printf("\\u%04x", c);
    else putchar(c);
  }
}

static double ms_of(struct timeval t) { return (double)t.tv_sec * 1e3 + 1e-3 * (double)t.tv_usec; }

int main(int argc, char** argv) {
  int skip_space = 0, errors = 0, dropped = 1, i = 1;
  for (; i < argc && strcmp(argv[i], "--"); i++) {
    if (!strcmp(argv[i], "-w")) skip_space = 1;
    else if (!strcmp(argv[i], "-e")) errors = 1;
    else if (!strcmp(argv[i], "-D")) dropped &= drop_all();
    else if (!strcmp(argv[i], "-d") && i + 1 < argc) dropped &= drop_file(argv[++i]);
    else return fprintf(stderr, "ttfb: unknown option %s\n", argv[i]), 2;
  }
  if (++i >= argc) return fprintf(stderr, "ttfb: no command after --\n"), 2;
  int out[2];
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || pipe2(out, O_CLOEXEC)) return perror("ttfb"), 2;
  const double begin = now_ms();
  const pid_t child = start(argv + i, null, out[1], errors);
  if (child < 0) return perror("ttfb: vfork"), 2;
  close(out[1]);
  static char text[1 << 20];
  size_t n = 0, from = 0;
  double first = -1;
  long own = -1, resident = -1;
  for (ssize_t got; n < sizeof text && (got = read(out[0], text + n, sizeof text - n)) > 0;) {
    const double t = now_ms();
    n += (size_t)got;
    if (first >= 0) continue;
    while (skip_space && from < n && strchr(" \t\r\n", text[from])) from++;
    if (from < n) first = t - begin, read_memory(child, &own, &resident);
  }
  int status;
  struct rusage usage;
  if (wait4(child, &status, 0, &usage) != child) return perror("ttfb: wait4"), 2;
  const double total = now_ms() - begin;
  printf("{\"ttfb_ms\":%.3f,\"total_ms\":%.3f,\"rss_kb\":%ld,\"private_kb\":%ld,\"rss_now_kb\":%ld,\"cpu_ms\":%.3f,\"majflt\":%ld,\"minflt\":%ld,"
         "\"rc\":%d,\"dropped\":%d,\"text\":\"",
         first, total, usage.ru_maxrss, own, resident, ms_of(usage.ru_utime) + ms_of(usage.ru_stime), usage.ru_majflt, usage.ru_minflt,
         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), dropped);
  print_text(text + from, n - from < 200 ? n - from : 200);
  puts("\"}");
  return 0;
}
