#include "src/base/read_ahead.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace tealight {
namespace {

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

// What is read at once: a 2 MiB page where the file system keeps files in such. Eight at a time saturate what block devices have.
constexpr size_t kPiece = 2 << 20;
constexpr size_t kReaders = 8;
constexpr size_t kStackBytes = 64 << 10;

// The time slice that the calling thread asks for, and threads inherit that it makes; 0: the usual one. One with a short slice runs as
// soon as its read has ended, where all CPUs compute or wait for each other (Linux 6.12; earlier ones take no notice).
void ask_for_slice(uint64_t ns) {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } a = {};
  static_assert(sizeof a == 48);       // sched_attr, its first version
  if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != SCHED_OTHER) return;
  a.runtime = ns;
  syscall(SYS_sched_setattr, 0, &a, 0);
}

}  // namespace

struct ReadAhead::Work {
  struct Piece {
    const std::byte* data;
    size_t bytes;
  };
  std::vector<std::shared_ptr<const Mapping>> files;   // kept until the last thread has ended
  std::vector<std::vector<bool>> planned;              // of each file's pieces
  std::vector<Piece> pieces;                           // in order
  std::mutex lock;
  size_t next = 0;
  std::vector<Piece> urgent;                           // before those
  std::atomic<bool> done = true;

  void add(std::span<const std::byte> part, std::vector<Piece>& to);
  std::optional<Piece> take();
  void stop();
  void read();
};

// The pieces that hold a part and have not been added yet.
void ReadAhead::Work::add(std::span<const std::byte> part, std::vector<Piece>& to) {
  for (size_t i = 0; i < files.size() && !part.empty(); i++) {
    const std::span<const std::byte> all = files[i]->bytes();
    if (part.data() < all.data() || part.data() >= all.data() + all.size()) continue;
    const size_t begin = size_t(part.data() - all.data()), end = begin + std::min(part.size(), all.size() - begin);
    for (size_t k = begin / kPiece; k * kPiece < end; k++) {
      if (planned[i][k]) continue;
      planned[i][k] = true;
      to.push_back({all.data() + k * kPiece, std::min(kPiece, all.size() - k * kPiece)});
    }
    return;
  }
}

std::optional<ReadAhead::Work::Piece> ReadAhead::Work::take() {
  const std::lock_guard guard(lock);
  if (done) return std::nullopt;
  if (!urgent.empty()) {
    const Piece p = urgent.back();
    urgent.pop_back();
    return p;
  }
  const Piece p = pieces[next++];
  done = next == pieces.size();
  return p;
}

void ReadAhead::Work::stop() {
  const std::lock_guard guard(lock);
  done = true;
}

void ReadAhead::Work::read() {
  while (const std::optional<Piece> p = take()) {
    auto* data = const_cast<std::byte*>(p->data);
    if (madvise(data, p->bytes, MADV_POPULATE_READ) == 0) continue;
    if (errno == EINVAL) madvise(data, p->bytes, MADV_WILLNEED);   // Linux before 5.14
    else if (errno != EINTR && errno != EAGAIN) stop();
  }
}

ReadAhead::ReadAhead(std::span<const std::shared_ptr<const Mapping>> files, std::span<const std::span<const std::byte>> order)
    : work_(std::make_shared<Work>()) {
  for (const auto& f : files)
    if (f->cold()) work_->files.push_back(f);
  if (work_->files.empty()) return;
  for (const auto& f : work_->files) work_->planned.emplace_back((f->size() + kPiece - 1) / kPiece);
  for (const std::span<const std::byte> part : order) work_->add(part, work_->pieces);
  work_->done = work_->pieces.empty();
  for (auto& p : work_->planned) p.assign(p.size(), false);   // from now on: of those that were urgent
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ask_for_slice(100'000);
  for (size_t i = 0; i < std::min(kReaders, work_->pieces.size()); i++) {
    auto* mine = new std::shared_ptr<Work>(work_);
    pthread_t thread;
    const auto run = [](void* p) -> void* {
      const std::unique_ptr<std::shared_ptr<Work>> work(static_cast<std::shared_ptr<Work>*>(p));
      (*work)->read();
      return nullptr;
    };
    if (pthread_create(&thread, &attributes, run, mine) != 0) {   // then there are fewer, or none: only slower
      delete mine;
      break;
    }
  }
  ask_for_slice(0);
  pthread_attr_destroy(&attributes);
}

ReadAhead::~ReadAhead() { work_->stop(); }

void ReadAhead::first(std::span<const std::byte> part) {
  const std::lock_guard guard(work_->lock);
  if (!work_->done) work_->add(part, work_->urgent);
}

bool ReadAhead::done() const { return work_->done.load(std::memory_order_relaxed); }

size_t ReadAhead::pieces() const { return work_->pieces.size(); }

}  // namespace tealight
