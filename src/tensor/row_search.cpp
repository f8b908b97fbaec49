#include "src/tensor/row_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/base.h"
#include "kernels/cpu/x16.h"
#include "src/base/checked.h"
#include "src/base/error.h"

namespace tealight {
namespace {

constexpr uint64_t kLeastBytes = 4 << 20;    // of a matrix that is worth a coarse copy: smaller ones stay in the caches
constexpr double kMostShare = 0.8;           // of its bytes that the copy may have
constexpr int64_t kChunk = 32;               // groups whose coarse products stay in the first cache
constexpr char kMagic[8] = {'R', 'O', 'W', 'S', 'R', 'C', 'H', '1'};

// What bytes hold: the header, then order [K], residual and norm [groups * 16], the high and the low rows, each 64-byte aligned.
struct Header {
  char magic[8];
  uint64_t rows;
  uint32_t inputs, high;
  float high_error;
};

struct Places {
  uint64_t order, residual, norm, high, low, end;
};

// Inputs in Q8_0: a tenth, which holds most of the length of a language model's last states.
int high_inputs(int64_t K) { return int(align_up(uint64_t(K) / 10, 32)); }

Places places(int64_t rows, int64_t K) {
  const uint64_t n = align_up(uint64_t(rows), 16), H = uint64_t(high_inputs(K));
  Places p;
  p.order = 64;
  p.residual = align_up(p.order + uint64_t(K) * 4, 64);
  p.norm = align_up(p.residual + n * 2, 64);
  p.high = align_up(p.norm + n * 2, 64);
  p.low = align_up(p.high + n * x16_row_bytes(Dtype::q8_0, H), 64);
  p.end = align_up(p.low + n * x16_row_bytes(Dtype::q4_0, uint64_t(K) - H), 64);
  return p;
}

// Types whose products are two terms that may cancel: |w| would be no measure of what rounding does. They have few bits anyway.
bool has_minima(Dtype t) {
  return t == Dtype::q4_1 || t == Dtype::q5_1 || t == Dtype::q2_k || t == Dtype::q4_k || t == Dtype::q5_k;
}

double squares(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += double(x[i]) * double(x[i]);
  return sum;
}
double squared_distance(const float* x, const float* y, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double(x[i]) - double(y[i])) * (double(x[i]) - double(y[i]));
  return sum;
}

// A half that is not below x >= 0; infinity where there is none, also for what is no number.
uint16_t half_above(double x) {
  if (!(x < 65000)) return 0x7c00;
  const uint16_t h = kernels::f32_to_f16(float(x));
  return double(kernels::f16_to_f32(h)) < x ? uint16_t(h + 1) : h;
}

// 32 values with a scale and codes from -127 to 127 (Q8_0), or from -8 to 7 (Q4_0: the largest value has the code -8). The loops are
// written so that compilers make vectors of them.
struct Block {
  uint16_t d;
  float scale;
  float code[32];
};
void quantize_block(const float* x, bool fine, Block& b) {
  int32_t key[32], most = INT32_MIN, least = INT32_MAX;        // in the order of the values
  std::memcpy(key, x, sizeof key);
  for (int32_t& k : key) k ^= (k >> 31) & INT32_MAX;
  for (int32_t k : key) most = k > most ? k : most;
  for (int32_t k : key) least = k < least ? k : least;
  const auto value = [](int32_t k) { return std::bit_cast<float>(k ^ ((k >> 31) & INT32_MAX)); };
  const float top = value(most), bottom = value(least), length = std::max(top, -bottom);
  const bool negative = !fine && top >= -bottom;               // a scale below zero
  b.d = kernels::f32_to_f16(negative ? length / -8.0f : length / (fine ? 127.0f : 8.0f));
  b.scale = kernels::f16_to_f32(b.d);
  const float inverse = b.scale != 0 ? 1 / b.scale : 0, lowest = fine ? -127 : -8, highest = fine ? 127 : 7;
  constexpr float kRound = 12582912.0f;                        // 1.5 * 2^23: adding it rounds to a whole number
  for (int i = 0; i < 32; i++) {
    const float q = (x[i] * inverse + kRound) - kRound;
    b.code[i] = q > lowest ? (q < highest ? q : highest) : lowest;   // of what is no number, too
  }
}
// Sum of squares of what the codes leave, and of the values; in eight lanes.
double squared_error(const float* x, const Block& b) {
  float lane[8] = {};
  for (int i = 0; i < 32; i += 8)
    for (int j = 0; j < 8; j++) {
      const float e = x[i + j] - b.scale * b.code[i + j];
      lane[j] += e * e;
    }
  return double(((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}
double sum_of_squares(const float* x, int n) {                 // n: a multiple of 32
  double sum = 0;
  const Block zero{};
  for (int i = 0; i < n; i += 32) sum += squared_error(x + i, zero);
  return sum;
}
void put_q8_0(const Block& b, std::byte* to) {
  std::memcpy(to, &b.d, 2);
  for (int i = 0; i < 32; i++) to[2 + i] = std::byte(int32_t(b.code[i]));
}
void put_q4_0(const Block& b, std::byte* to) {
  std::memcpy(to, &b.d, 2);
  for (int i = 0; i < 16; i++) to[2 + i] = std::byte((int32_t(b.code[i]) + 8) | (int32_t(b.code[i + 16]) + 8) << 4);
}

}  // namespace

struct RowSearch::Query {
  Tensor x;                                  // f32 [K], or
  Tensor act;                                // int8 activations for W, where its kernel wants them
  float low_length = 0;                      // |x'|_low
  float rest = 0;                            // what multiplies |w|
  float threshold = 0;                       // of exact products: rows that cannot reach it are left out
};

// Rows in falling order of their values, at most k of them; the lower id of equals first.
struct RowSearch::Best {
  Row* rows;
  int k, n = 0;
  bool finite = true;

  static bool better(const Row& a, const Row& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }
  void add(Row r) {
    if (n == k && !better(r, rows[n - 1])) return;
    int at = n < k ? n++ : n - 1;
    for (; at > 0 && better(r, rows[at - 1]); at--) rows[at] = rows[at - 1];
    rows[at] = r;
  }
};

uint64_t RowSearch::bytes_for(const Tensor& w) {
  if (w.rank() != 2 || w.dim(1) % 32 || w.dim(1) < 64 || w.bytes() < kLeastBytes || !(w.is_contiguous() || w.interleaved())) return 0;
  if (info(w.dtype()).family == Family::none || has_minima(w.dtype())) return 0;
  const Places p = places(w.dim(0), w.dim(1));
  return double(p.end) <= kMostShare * double(w.bytes()) ? p.end : 0;
}

RowSearch::Maker::Maker(CpuBackend& device, Tensor w, std::span<const double> energy, std::byte* to) : device_(device), w_(std::move(w)), to_(to) {
  TEALIGHT_CHECK(bytes_for(w_) > 0 && int64_t(energy.size()) == w_.dim(1));
  Header h{{}, uint64_t(w_.dim(0)), uint32_t(w_.dim(1)), uint32_t(high_inputs(w_.dim(1))), 0};
  std::memcpy(h.magic, kMagic, sizeof h.magic);
  std::memcpy(to, &h, sizeof h);
  auto* order = reinterpret_cast<uint32_t*>(to + places(w_.dim(0), w_.dim(1)).order);
  for (uint32_t i = 0; i < h.inputs; i++) order[i] = i;
  std::sort(order, order + h.inputs, [&](uint32_t a, uint32_t b) { return energy[a] > energy[b] || (energy[a] == energy[b] && a < b); });
}

float RowSearch::Maker::group(int64_t g, float* rows, std::byte* blocks) const {
  const int64_t n_rows = w_.dim(0);
  const int K = int(w_.dim(1)), H = high_inputs(K), L = K - H;
  const Places p = places(n_rows, K);
  const auto* order = reinterpret_cast<const uint32_t*>(to_ + p.order);
  const size_t high_row = row_bytes(Dtype::q8_0, size_t(H)), low_row = row_bytes(Dtype::q4_0, size_t(L));
  std::byte *high = blocks, *low = blocks + 16 * high_row;
  const int m = int(std::min<int64_t>(16, n_rows - g * 16));
  float worst = 0;
  for (int i = 0; i < m; i++) {
    float *plain = rows, *x = rows + K;
    device_.read_row(w_, g * 16 + i, plain);
    for (int k = 0; k < K; k++) x[k] = plain[order[k]];
    double errors[2] = {};                   // squares, of low and high inputs
    for (int k = 0; k < K; k += 32) {
      const bool fine = k < H;
      Block b;
      quantize_block(x + k, fine, b);
      if (fine) put_q8_0(b, high + size_t(i) * high_row + size_t(k / 32) * 34);
      else put_q4_0(b, low + size_t(i) * low_row + size_t((k - H) / 32) * 18);
      errors[fine] += squared_error(x + k, b);
    }
    constexpr double kUp = 1 + 1e-5;         // rounding of the sums above
    const double norm = std::sqrt(sum_of_squares(x, K)) * kUp, high_error = std::sqrt(errors[1]) * kUp;
    reinterpret_cast<uint16_t*>(to_ + p.residual)[g * 16 + i] = half_above(std::sqrt(errors[0]) * kUp);
    reinterpret_cast<uint16_t*>(to_ + p.norm)[g * 16 + i] = half_above(norm);
    // Of a row that is no number, or none at all, the stored norm says all.
    if (norm > 0 && norm < 65000) worst = std::max(worst, float(high_error / norm) * 1.00001f);
  }
  kernels::interleave_x16(Dtype::q8_0, high, m, H, to_ + p.high + uint64_t(g) * 16 * x16_row_bytes(Dtype::q8_0, size_t(H)));
  kernels::interleave_x16(Dtype::q4_0, low, m, L, to_ + p.low + uint64_t(g) * 16 * x16_row_bytes(Dtype::q4_0, size_t(L)));
  return worst;
}

bool RowSearch::Maker::step(int64_t n) {
  const int64_t K = w_.dim(1), groups = (w_.dim(0) + 15) / 16, begin = next_, end = std::min(groups, next_ + n);
  const size_t floats = size_t(K) * 2 * sizeof(float), per_thread = align_up(floats + 16 * row_bytes(Dtype::q8_0, size_t(K)), 64);
  std::byte* all = device_.scratch(per_thread);
  const int threads = device_.threads();
  std::atomic<float> worst{0};
  device_.run([&](int t) {
    std::byte* mine = all + size_t(t) * per_thread;
    float most = 0;
    for (int64_t g = begin + (end - begin) * t / threads; g < begin + (end - begin) * (t + 1) / threads; g++)
      most = std::max(most, group(g, reinterpret_cast<float*>(mine), mine + floats));
    for (float seen = worst; seen < most && !worst.compare_exchange_weak(seen, most);) {}
  });
  auto* header = reinterpret_cast<Header*>(to_);
  header->high_error = std::max(header->high_error, worst.load());
  next_ = end;
  return next_ < groups;
}

RowSearch::~RowSearch() = default;

RowSearch::RowSearch(CpuBackend& device, Tensor w, std::span<const std::byte> bytes, std::shared_ptr<const void> keep)
    : device_(device), w_(std::move(w)), groups_((w_.dim(0) + 15) / 16), K_(int(w_.dim(1))), high_(high_inputs(K_)), keep_(std::move(keep)),
      bytes_(bytes) {
  Header h;
  if (bytes_for(w_) == 0 || bytes.size() != bytes_for(w_)) fail(Code::format, "search: ", bytes.size(), " bytes, expected ", bytes_for(w_));
  std::memcpy(&h, bytes.data(), sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof h.magic) != 0 || h.rows != uint64_t(w_.dim(0)) || h.inputs != uint32_t(K_) || h.high != uint32_t(high_) ||
      !(h.high_error >= 0))
    fail(Code::format, "search: it was made for another matrix");
  const Places p = places(w_.dim(0), K_);
  order_ = reinterpret_cast<const uint32_t*>(bytes.data() + p.order);
  for (int k = 0; k < K_; k++)
    if (order_[k] >= uint32_t(K_)) fail(Code::format, "search: input ", order_[k], " of ", K_);
  residual_ = reinterpret_cast<const uint16_t*>(bytes.data() + p.residual);
  norm_ = reinterpret_cast<const uint16_t*>(bytes.data() + p.norm);
  high_error_ = h.high_error;
  high_rows_ = Tensor::view(device_, bytes.data() + p.high, {groups_ * 16, high_}, Dtype::q8_0, keep_, true);
  low_rows_ = Tensor::view(device_, bytes.data() + p.low, {groups_ * 16, K_ - high_}, Dtype::q4_0, keep_, true);
  const int64_t L = K_ - high_;
  const auto activations = [&](Family f, int n, int64_t inputs) {
    return Tensor::empty(device_, {int64_t(kernels::act_bytes(f, n, int(inputs)))}, Dtype::u8);
  };
  values_ = Tensor::empty(device_, {2 + kMaxVectors, K_});
  one_ = activations(Family::block32, 1, K_);
  coarse_high_ = activations(Family::block32, kMaxVectors, high_);
  coarse_low_ = activations(Family::block32, kMaxVectors, L);
  queries_.resize(kMaxVectors);
  if (const Family f = device_.input_family(w_.dtype()); f != Family::floating)
    for (Query& q : queries_) q.act = activations(f, 1, K_);
  device_.scratch(scan_scratch(K_, kMaxVectors));
  bounds_.resize(size_t(groups_) * kMaxVectors);
  const size_t threads = size_t(device_.threads());
  kept_.resize(threads * kMaxVectors * kMaxBest);
  n_kept_.resize(threads * kMaxVectors);
  found_rows_.resize(threads * kMaxBest);
  found_.resize(threads);
  left_.reserve(size_t(groups_));
}

size_t RowSearch::scan_scratch(int64_t K, int n) {
  return align_up(size_t(2 * n + 2) * kChunk * 16 * sizeof(float) + CpuBackend::multiply_scratch(int(K), n), 64);
}

// Both forms of each vector, and how far apart they are. False: a value is not finite.
bool RowSearch::prepare(const Tensor& x) {
  const int n = int(x.dim(0)), L = K_ - high_;
  const kernels::Table& kernels = device_.kernels();
  const Family family = device_.input_family(w_.dtype());
  float *v = values_.data(), *seen = v + K_, *high = seen + K_, *low = high + kMaxVectors * high_;
  for (int t = 0; t < n; t++) {
    Query& q = queries_[size_t(t)];
    const float* given = x.data() + int64_t(t) * x.stride(0);
    float *h = high + t * high_, *l = low + t * L;
    if (family == Family::floating) {
      q.x = x.slice(0, t, t + 1);
      std::memcpy(v, given, size_t(K_) * sizeof(float));
    } else {
      if (!kernels.quantize(family, given, size_t(K_), 1, K_, q.act.data<void>())) return false;
      kernels::act_values(family, q.act.data<void>(), K_, v);
    }
    for (int k = 0; k < high_; k++) h[k] = v[order_[k]];
    for (int k = 0; k < L; k++) l[k] = v[order_[high_ + k]];
    // How the coarse kernels see it: the codes of a token do not depend on the others.
    void* one = one_.data<void>();
    kernels.quantize(Family::block32, h, size_t(high_), 1, high_, one);
    kernels::act_values(Family::block32, one, high_, seen);
    kernels.quantize(Family::block32, l, size_t(L), 1, L, one);
    kernels::act_values(Family::block32, one, L, seen + high_);
    const double off = std::sqrt(squared_distance(h, seen, high_) + squared_distance(l, seen + high_, L));
    const double high_length = std::sqrt(squares(seen, high_)), low_length = std::sqrt(squares(seen + high_, L));
    // Rounding of W's chain of at most K additions, of C's, and of the bound itself; |c| <= 2 |w| + |w - c|_low.
    const double rounding = double(K_ + 64) * 0x1p-24, length = std::sqrt(squares(v, K_));
    q.low_length = float(low_length * (1 + rounding)) * 1.000001f;
    q.rest = float(off + double(high_error_) * high_length + rounding * (length + 2 * (high_length + low_length))) * 1.000001f;
  }
  return kernels.quantize(Family::block32, high, size_t(high_), n, high_, coarse_high_.data<void>()) &&
         kernels.quantize(Family::block32, low, size_t(L), n, L, coarse_low_.data<void>());
}

// Coarse products of groups g0 to g1 - 1: each group's largest bound, and the rows that look best.
void RowSearch::scan(int64_t g0, int64_t g1, std::span<Best> best, std::byte* scratch) {
  const int n = int(best.size()), rows = int(kChunk * 16);
  auto* high = reinterpret_cast<float*>(scratch);
  float *low = high + n * rows, *residual = low + n * rows, *norm = residual + rows;
  std::byte* rest = scratch + size_t(2 * n + 2) * size_t(rows) * sizeof(float);
  const auto widen = device_.kernels().widen[int(Dtype::f16)];
  for (int64_t c = g0; c < g1; c += kChunk) {
    const int m = int(std::min(kChunk, g1 - c)) * 16;
    device_.multiply(high_rows_.slice(0, c * 16, c * 16 + m), coarse_high_.data<void>(), nullptr, n, high, size_t(rows), 0, m, rest);
    device_.multiply(low_rows_.slice(0, c * 16, c * 16 + m), coarse_low_.data<void>(), nullptr, n, low, size_t(rows), 0, m, rest);
    widen(residual_ + c * 16, residual, size_t(m));
    widen(norm_ + c * 16, norm, size_t(m));
    const int64_t real = w_.dim(0) - c * 16;           // rows that are none come last
    for (int t = 0; t < n; t++) {
      const float *h = high + t * rows, *l = low + t * rows;
      const float by_residual = queries_[size_t(t)].low_length, by_norm = queries_[size_t(t)].rest;
      float* bounds = bounds_.data() + int64_t(t) * groups_ + c;
      Best& b = best[size_t(t)];
      for (int i = 0; i < m; i += 16) {
        float near[16], up[16];
        for (int j = 0; j < 16; j++) near[j] = h[i + j] + l[i + j];
        for (int j = 0; j < 16; j++) up[j] = near[j] + (residual[i + j] * by_residual + norm[i + j] * by_norm);
        float most = up[0], nearest = near[0];
        for (int j = 1; j < 16; j++) most = up[j] <= most ? most : up[j];       // what is no number stays
        for (int j = 1; j < 16; j++) nearest = near[j] > nearest ? near[j] : nearest;
        bounds[i / 16] = most;
        if (b.n < b.k || nearest > b.rows[b.n - 1].value)
          for (int j = 0; j < 16 && i + j < real; j++) b.add({int32_t(c * 16 + i + j), near[j]});
      }
    }
  }
}

// Exact products of a group's rows.
void RowSearch::score(int64_t g, const Query& q, Best& best, std::byte* scratch) const {
  const int m = int(std::min<int64_t>(16, w_.dim(0) - g * 16));
  alignas(64) float y[16];
  device_.multiply(w_.slice(0, g * 16, g * 16 + m), q.act ? q.act.data<void>() : nullptr, q.x ? q.x.data() : nullptr, 1, y, 16, 0, m, scratch);
  for (int j = 0; j < m; j++) {
    best.finite &= std::isfinite(y[j]);
    best.add({int32_t(g * 16 + j), y[j]});
  }
}

double RowSearch::left_of(const Tensor& x, float top, int64_t groups) {
  TEALIGHT_CHECK(x.dim(0) == 1 && groups > 0 && groups <= groups_);
  if (!prepare(x)) return 1;
  const int threads = device_.threads();
  const size_t per_thread = scan_scratch(K_, 1);
  std::byte* scratch = device_.scratch(per_thread);
  device_.run([&](int t) {
    Row row;
    Best of_no_interest{&row, 1};
    scan(groups * t / threads, groups * (t + 1) / threads, {&of_no_interest, 1}, scratch + size_t(t) * per_thread);
  });
  const auto left = std::count_if(bounds_.begin(), bounds_.begin() + groups, [&](float bound) { return !(bound < top); });
  return double(left) / double(groups);
}

bool RowSearch::find(const Tensor& x, int k, std::span<Row> out, double most_share) {
  const int n = int(x.dim(0)), threads = device_.threads();
  TEALIGHT_CHECK(n > 0 && n <= kMaxVectors && k > 0 && k <= kMaxBest && out.size() == size_t(n * k) && w_.dim(0) >= k);
  exact_share_ = 0;
  if (!prepare(x)) return false;
  const size_t per_thread = scan_scratch(K_, n);
  std::byte* scratch = device_.scratch(per_thread);
  const auto mine = [&](int t) { return scratch + size_t(t) * per_thread; };

  // A few more than wanted are tried first: the better the worst of the k, the fewer are left.
  const int tried = std::min<int>({k + 3, kMaxBest, int(w_.dim(0))});
  device_.run([&](int t) {
    Best b[kMaxVectors];
    for (int i = 0; i < n; i++) b[i] = {kept_.data() + (t * kMaxVectors + i) * kMaxBest, tried};
    scan(groups_ * t / threads, groups_ * (t + 1) / threads, {b, size_t(n)}, mine(t));
    for (int i = 0; i < n; i++) n_kept_[size_t(t * kMaxVectors + i)] = b[i].n;
  });

  int64_t scored = 0;
  bool finite = true;
  for (int i = 0; i < n; i++) {
    Query& q = queries_[size_t(i)];
    float* bounds = bounds_.data() + i * groups_;
    Row first[kMaxBest];
    Best merged{first, tried}, best{out.data() + i * k, k};
    for (int t = 0; t < threads; t++)
      for (int j = 0; j < n_kept_[size_t(t * kMaxVectors + i)]; j++) merged.add(kept_[size_t((t * kMaxVectors + i) * kMaxBest + j)]);
    const auto exactly = [&](int64_t g) {
      score(g, q, best, mine(0));
      bounds[g] = -INFINITY;                           // done
      scored++;
    };
    for (int j = 0; j < merged.n; j++)
      if (bounds[first[j].id / 16] != -INFINITY) exactly(first[j].id / 16);
    q.threshold = best.n == k ? best.rows[k - 1].value : -INFINITY;

    left_.clear();
    for (int64_t g = 0; g < groups_; g++)
      if (!(bounds[g] < q.threshold) && bounds[g] != -INFINITY) left_.push_back(g);
    exact_share_ = double(scored + int64_t(left_.size())) / double(groups_ * n);
    if (exact_share_ > most_share) return false;
    if (left_.size() < 64) {
      for (int64_t g : left_)
        if (!(bounds[g] < best.rows[best.n - 1].value) || best.n < k) exactly(g);
    } else {
      scored += int64_t(left_.size());
      device_.run([&](int t) {
        Best b{found_rows_.data() + t * kMaxBest, k};
        const int64_t count = int64_t(left_.size());
        for (int64_t j = count * t / threads; j < count * (t + 1) / threads; j++)
          if (b.n < k || !(bounds[left_[size_t(j)]] < b.rows[k - 1].value)) score(left_[size_t(j)], q, b, mine(t));
        found_[size_t(t)] = b.finite ? b.n : -1;
      });
      for (int t = 0; t < threads; t++) {
        best.finite &= found_[size_t(t)] >= 0;
        for (int j = 0; j < found_[size_t(t)]; j++) best.add(found_rows_[size_t(t * kMaxBest + j)]);
      }
    }
    finite &= best.finite;
  }
  exact_share_ = double(scored) / double(groups_ * n);
  return finite;
}

}  // namespace tealight
