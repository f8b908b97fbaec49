#include "src/task/weight_copy.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/x16.h"
#include "src/base/checked.h"
#include "src/base/clock.h"
#include "src/task/sequence.h"

namespace tealight {
namespace {

constexpr uint64_t kLargePage = 2 << 20;
constexpr uint64_t kLeastBytes = 8 << 20;    // of all weights: fewer stay in the caches
constexpr int kFirstStep = 8;                // a process that ends sooner has no use for a copy
constexpr double kShare = 0.25;              // of a step's time
constexpr uint64_t kPiece = 512 << 10;       // bytes between two looks at the clock
constexpr int64_t kTried = 512;              // groups of the head's coarse copy that show whether the rest is worth making:
constexpr double kHopeless = 0.5;            // not where such a share of them would be left (texts: 0.03 to 0.3; random weights: 0.7 to 0.9)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

bool worth_copying(const Tensor& w) { return w && w.rank() == 2 && w.dim(0) >= 16 && (w.is_contiguous() || w.interleaved()); }
bool becomes_x16(const Tensor& w) { return w.interleaved() || has_x16(w.dtype()); }
uint64_t copied_bytes(const Tensor& w) { return becomes_x16(w) ? Tensor::interleaved_bytes(w.shape(), w.dtype()) : w.bytes(); }

long page_faults() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_minflt;
}

}  // namespace

// One range of addresses for all copies, large pages where the system has them.
struct WeightCopy::Arena {
  std::byte *begin = nullptr, *at = nullptr, *end = nullptr;
  void* mapped = nullptr;
  size_t mapped_bytes = 0;

  explicit Arena(uint64_t bytes) : mapped_bytes(size_t(align_up(bytes, kLargePage) + kLargePage)) {
    mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      mapped = nullptr;
      return;
    }
    at = begin = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(mapped), kLargePage));
    end = begin + align_up(bytes, kLargePage);
    madvise(begin, size_t(end - begin), MADV_HUGEPAGE);
  }
  ~Arena() {
    if (mapped) munmap(mapped, mapped_bytes);
  }
};

struct WeightCopy::Part {
  Tensor* weight = nullptr;            // null: the coarse copy of the head, made or as a packed file brought it
  uint64_t bytes = 0;                  // that its copy takes
  std::span<const std::byte> mapped;   // where it lies now, if it has the right layout there; empty otherwise
  uint64_t collapsed = 0;              // of those
  std::byte* to = nullptr;             // its copy, once that is begun
  int64_t done = 0;                    // groups of 16 rows, or bytes
  std::unique_ptr<RowSearch::Maker> maker;
};

WeightCopy::WeightCopy(Engine& engine, nn::Decoder& decoder, uint64_t room) : engine_(engine), decoder_(decoder), room_(room) {
  nn::each_weight(decoder, [&](const Tensor& w) {
    // Of an embedding single rows are read, of the head all: it comes last, in one of two forms.
    if (worth_copying(w) && &w != &decoder.embedding && &w != &decoder.positions && &w != &decoder.head.w)
      todo_.push_back(const_cast<Tensor*>(&w));      // the decoder is not const
  });
  uint64_t need = std::max(copied_bytes(decoder.head.w), RowSearch::bytes_for(decoder.head.w)) + RowSearch::bytes_for(decoder.head.w);
  for (const Tensor* w : todo_) need += align_up(copied_bytes(*w), 64);
  if (need > room || need < kLeastBytes) {
    todo_.clear();
    room_ = 0;
    return;
  }
  room_ = need + 128;
  std::reverse(todo_.begin(), todo_.end());
  if (decoder.searchable() && !engine.search) {
    engine.energy.assign(size_t(decoder.head.w.dim(1)), 0.0);
    engine.sample_states = Tensor::empty(*engine.device, {int64_t(Engine::kSamples), decoder.head.w.dim(1)});
    engine.sample_tops.reserve(Engine::kSamples);
  }
}

WeightCopy::~WeightCopy() = default;

std::byte* WeightCopy::room_for(uint64_t bytes) {
  if (!arena_) {
    arena_ = std::make_shared<Arena>(room_);
    if (!arena_->mapped) return nullptr;
    // One page fault for the first two mebibytes: they are one page.
    const long before = page_faults();
    for (uint64_t i = 0; i < kLargePage; i += 4096) reinterpret_cast<volatile char*>(arena_->begin)[i] = 0;
    large_pages_ = page_faults() - before < 64;
  }
  std::byte* p = arena_->at;
  if (!p || bytes > uint64_t(arena_->end - p)) return nullptr;
  arena_->at = p + align_up(bytes, 64);
  return p;
}

bool WeightCopy::next() {
  if (room_ == 0) return false;
  Tensor& head = decoder_.head.w;
  if (!todo_.empty()) {
    begin_weight(*todo_.back());
    todo_.pop_back();
  } else if (!search_copied_ && searched_ > 0 && decoder_.searchable()) {
    search_copied_ = true;
    part_ = std::make_unique<Part>();
    part_->bytes = RowSearch::bytes_for(head);
    if (engine_.search) part_->mapped = engine_.search->bytes();
  } else if ((read_ > kFirstStep || !engine_.search) && !head_copied_ && worth_copying(head)) {
    head_copied_ = true;
    begin_weight(head);
  } else {
    return false;
  }
  return true;
}

void WeightCopy::begin_weight(Tensor& w) {
  part_ = std::make_unique<Part>();
  part_->weight = &w;
  part_->bytes = copied_bytes(w);
  if (w.interleaved() || !has_x16(w.dtype())) part_->mapped = {w.data<std::byte>(), size_t(w.bytes())};
}

bool WeightCopy::collapse() {
  Part& p = *part_;
  const auto begin = align_down(reinterpret_cast<uintptr_t>(p.mapped.data()), kLargePage);
  const auto end = align_down(reinterpret_cast<uintptr_t>(p.mapped.data() + p.mapped.size()), kLargePage);
  const uintptr_t at = begin + p.collapsed;
  if (!collapses_ || at >= end) return false;
  collapses_ = madvise(reinterpret_cast<void*>(at), kLargePage, MADV_COLLAPSE) == 0;
  p.collapsed += kLargePage;
  return collapses_;
}

bool WeightCopy::work() {
  if (!part_ && !next()) return false;
  Part& p = *part_;
  if (!p.to) {
    if (!p.mapped.empty() && collapses_) {
      if (!collapse() && collapses_) part_.reset();
      return true;
    }
    p.to = room_for(p.bytes);
    if (!p.to) room_ = 0;
    if (!p.to || (!large_pages_ && !p.mapped.empty())) {   // no room, or nothing would become quicker
      part_.reset();
      return room_ > 0;
    }
    if (!p.weight && p.mapped.empty()) p.maker = std::make_unique<RowSearch::Maker>(*engine_.device, decoder_.head.w, engine_.energy, p.to);
  }
  if (p.weight ? copy_rows(p) : copy_search(p)) part_.reset();
  return true;
}

bool WeightCopy::worthless(const Part& p) {
  const size_t n = engine_.sample_tops.size();
  if (n == 0) return false;
  const auto search = std::make_unique<RowSearch>(*engine_.device, decoder_.head.w, std::span<const std::byte>(p.to, size_t(p.bytes)), arena_);
  double left = 0;
  for (size_t i = 0; i < n; i++)
    left += search->left_of(engine_.sample_states.slice(0, int64_t(i), int64_t(i) + 1), engine_.sample_tops[i], kTried);
  return left / double(n) > kHopeless;
}

bool WeightCopy::copy_search(Part& p) {
  if (p.maker && p.maker->step(128)) {
    if (p.maker->made() != kTried || !worthless(p)) return false;
    engine_.energy.clear();
    return true;
  }
  if (!p.maker) {
    const size_t n = std::min(size_t(p.bytes) - size_t(p.done), size_t(kPiece));
    std::memcpy(p.to + p.done, p.mapped.data() + p.done, n);
    p.done += int64_t(n);
    if (uint64_t(p.done) < p.bytes) return false;
  }
  engine_.search = std::make_unique<RowSearch>(*engine_.device, decoder_.head.w, std::span<const std::byte>(p.to, size_t(p.bytes)), arena_);
  engine_.energy.clear();              // has served
  return true;
}

bool WeightCopy::copy_rows(Part& p) {
  CpuBackend& device = *engine_.device;
  const Tensor& w = *p.weight;
  const bool x16 = becomes_x16(w);
  const size_t K = size_t(w.dim(1)), from_row = w.interleaved() ? x16_row_bytes(w.dtype(), K) : row_bytes(w.dtype(), K);
  const size_t to_row = x16 ? x16_row_bytes(w.dtype(), K) : from_row;
  const int64_t rows = w.dim(0), groups = (rows + 15) / 16;
  const int64_t first = p.done, last = std::min(groups, first + std::max<int64_t>(1, int64_t(kPiece / (16 * to_row))));
  const auto* from = w.data<std::byte>();
  const int threads = device.threads();
  device.run([&](int t) {
    for (int64_t g = first + (last - first) * t / threads; g < first + (last - first) * (t + 1) / threads; g++) {
      const int m = int(std::min<int64_t>(16, rows - g * 16));
      const std::byte* source = from + size_t(g * 16) * from_row;
      std::byte* to = p.to + size_t(g * 16) * to_row;
      if (x16 && !w.interleaved()) kernels::interleave_x16(w.dtype(), source, m, int(K), to);
      else std::memcpy(to, source, (x16 ? 16 : size_t(m)) * to_row);
    }
  });
  p.done = last;
  if (last < groups) return false;
  *p.weight = Tensor::view(device, p.to, w.shape(), w.dtype(), arena_, x16);
  return true;
}

void WeightCopy::after_step(double step_us) {
  if (steps_++ < kFirstStep) return;
  const int64_t begin = monotonic_us();
  while (double(monotonic_us() - begin) < kShare * step_us)
    if (!work()) break;
}

void WeightCopy::finish() {
  while (work()) {}
}

}  // namespace tealight
