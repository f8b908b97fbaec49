#include "src/tensor/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/cpu/x16.h"
#include "src/base/checked.h"
#include "src/base/error.h"

namespace tealight {
namespace {

constexpr size_t kFitting = 256 << 10;  // blocks of so many bytes may be larger than asked for: logits of few rows and of many share one

// The index of the smallest size class that holds `bytes`, and its size: quarters between powers of two from 256 bytes on.
int size_class(size_t bytes, size_t& size) {
  bytes = std::max<size_t>(bytes, 256);
  const int log = std::bit_width(bytes - 1) - 1;           // 2^log < bytes <= 2^(log+1), bytes > 256: log >= 8
  const int base = std::max(log, 7);
  const size_t quarter = size_t(1) << (base - 2);
  const size_t q = (bytes - (size_t(1) << base) + quarter - 1) / quarter;
  size = (size_t(1) << base) + q * quarter;
  return base * 4 + int(q);
}

// Blocks of so many bytes, caches of long texts, ask for large pages behind their first part, which is all that a short answer uses.
constexpr size_t kLarge = 16 << 20, kSmallPages = 4 << 20, kLargePage = 2 << 20;

constexpr size_t kHeader = 64;          // the Storage of an owned block lies in front of it
static_assert(sizeof(Storage) <= kHeader);

// Calls f(offset of each operand) for every element position of a strided walk in row-major order.
template <int N, class F>
void walk(const Shape& s, const Tensor* const (&t)[N], const F& f) {
  int64_t at[N] = {}, index[kMaxRank] = {};
  for (int64_t n = s.elements(); n > 0; n--) {
    f(at);
    for (int d = s.rank - 1; d >= 0; d--) {
      for (int i = 0; i < N; i++) at[i] += t[i]->stride(d);
      if (++index[d] < s[d]) break;
      for (int i = 0; i < N; i++) at[i] -= t[i]->stride(d) * s[d];
      index[d] = 0;
    }
  }
}

template <class T>
void copy_as_float(const Tensor& in, const Tensor& out) {
  const T* src = in.data<T>();
  float* dst = out.data<float>();
  walk<2>(in.shape(), {&in, &out}, [&](const int64_t* at) { dst[at[1]] = float(src[at[0]]); });
}

}  // namespace

CpuBackend::CpuBackend(const kernels::Table& kernels, int threads, bool int8_activations)
    : kernels_(kernels), pool_(threads), int8_activations_(int8_activations) {}

CpuBackend::~CpuBackend() {
  if (scratch_) free(scratch_);
  for (Storage* s : free_)
    while (s) {
      Storage* next = static_cast<Storage*>(s->data);
      std::free(s);
      s = next;
    }
}

Storage* CpuBackend::allocate(size_t bytes) {
  size_t size;
  const int c = size_class(bytes, size);
  TEALIGHT_CHECK(c < kClasses);
  while (lock_.test_and_set(std::memory_order_acquire)) {}
  int from = c;
  if (size >= kFitting)
    while (!free_[from] && from + 1 < kClasses) from++;
  Storage* s = free_[from];
  if (s) free_[from] = static_cast<Storage*>(s->data);
  else blocks_made_++;
  lock_.clear(std::memory_order_release);
  if (!s) {
    void* p = std::aligned_alloc(64, align_up(kHeader + size, 64));
    if (!p) fail(Code::memory, "no memory for a block of ", size, " bytes");
    if (size >= kLarge) {
      const uintptr_t begin = align_up(uintptr_t(p) + kSmallPages, kLargePage), end = (uintptr_t(p) + size) & ~(kLargePage - 1);
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);   // where the system has none, nothing changes
    }
    s = new (p) Storage;
    s->device = this;
    s->bytes = size;
  }
  s->data = reinterpret_cast<char*>(s) + kHeader;
  s->count.store(1, std::memory_order_relaxed);
  return s;
}

void CpuBackend::free(Storage* s) noexcept {
  if (s->keep) {
    delete s;
    return;
  }
  size_t size;
  const int c = size_class(s->bytes, size);
  while (lock_.test_and_set(std::memory_order_acquire)) {}
  s->data = free_[c];
  free_[c] = s;
  lock_.clear(std::memory_order_release);
}

std::byte* CpuBackend::scratch(size_t bytes_per_thread) {
  const size_t need = align_up(bytes_per_thread, 64) * size_t(pool_.threads());
  if (!scratch_ || scratch_->bytes < need) {
    if (scratch_) free(scratch_);
    scratch_ = nullptr;
    scratch_ = allocate(need);
  }
  return static_cast<std::byte*>(scratch_->data);
}

void CpuBackend::upload(const void* host, void* device, size_t bytes) { std::memcpy(device, host, bytes); }
void CpuBackend::download(const void* device, void* host, size_t bytes) { std::memcpy(host, device, bytes); }
void CpuBackend::copy_bytes(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }

void CpuBackend::read_row(const Tensor& w, int64_t row, float* out) const {
  if (!w.interleaved()) {
    const size_t stride = row_bytes(w.dtype(), size_t(w.dim(1)));
    return kernels_.widen[int(w.dtype())](w.data<char>() + size_t(row) * stride, out, size_t(w.dim(1)));
  }
  constexpr int kPiece = 2048;                             // values: whole chunks of every type
  alignas(64) std::byte plain[kPiece * 2];                 // no type has more bytes
  const int K = int(w.dim(1));
  const char* group = w.data<char>() + size_t(row / 16 * 16) * x16_row_bytes(w.dtype(), size_t(K));
  for (int k = 0; k < K; k += kPiece) {
    const int n = std::min(kPiece, K - k);
    kernels::extract_x16(w.dtype(), group + 16 * x16_row_bytes(w.dtype(), size_t(k)), int(row % 16), n, plain);
    kernels_.widen[int(w.dtype())](plain, out + k, size_t(n));
  }
}

void CpuBackend::copy(const Tensor& in, const Tensor& out) {
  if (rehearsing_) return;
  if (in.is_contiguous() && out.is_contiguous() && in.dtype() == Dtype::f32) {
    std::memcpy(out.data(), in.data(), size_t(in.elements()) * sizeof(float));
    return;
  }
  if (auto widen = kernels_.widen[int(in.dtype())]; widen && in.is_contiguous() && out.is_contiguous()) {
    widen(in.data<void>(), out.data(), size_t(in.elements()));
    return;
  }
  switch (in.dtype()) {
    case Dtype::f32: return copy_as_float<float>(in, out);
    case Dtype::f64: return copy_as_float<double>(in, out);
    case Dtype::i8: return copy_as_float<int8_t>(in, out);
    case Dtype::i16: return copy_as_float<int16_t>(in, out);
    case Dtype::i32: return copy_as_float<int32_t>(in, out);
    case Dtype::i64: return copy_as_float<int64_t>(in, out);
    case Dtype::u8:
    case Dtype::boolean: return copy_as_float<uint8_t>(in, out);
    case Dtype::u16: return copy_as_float<uint16_t>(in, out);
    case Dtype::u32: return copy_as_float<uint32_t>(in, out);
    case Dtype::u64: return copy_as_float<uint64_t>(in, out);
    default: break;
  }
  auto widen = kernels_.widen[int(in.dtype())];
  if (!widen) fail(Code::unsupported, "copy: values of type ", tealight::name(in.dtype()), " cannot be read");
  if (in.interleaved() && in.rank() == 2) {
    for (int64_t i = 0; i < in.dim(0); i++) read_row(in, i, out.select(0, i).data());
    return;
  }
  if (is_quantized(in.dtype())) {   // views of quantized tensors keep whole, contiguous rows
    if (in.rank() == 1) return widen(in.data<void>(), out.data(), size_t(in.dim(0)));
    for (int64_t i = 0; i < in.dim(0); i++) copy(in.select(0, i), out.select(0, i));
    return;
  }
  walk<2>(in.shape(), {&in, &out}, [&](const int64_t* at) { widen(in.data<uint16_t>() + at[0], out.data() + at[1], 1); });
}

void CpuBackend::fill(const Tensor& out, float value) {
  if (out.dtype() != Dtype::f32) {
    TEALIGHT_CHECK(value == 0 && out.is_contiguous());
    std::memset(out.data<void>(), 0, row_bytes(out.dtype(), size_t(out.elements())));
    return;
  }
  float* p = out.data();
  walk<1>(out.shape(), {&out}, [&](const int64_t* at) { p[at[0]] = value; });
}

void CpuBackend::unary(Unary op, const Tensor& x, float a, const Tensor& out) {
  const float* in = x.data();
  float* y = out.data();
  const int64_t n = x.elements();
  split(n, n, [&](int64_t b, int64_t e) {
    const size_t m = size_t(e - b);
    const float* p = in + b;
    float* q = y + b;
    auto each = [&](auto f) {
      for (size_t i = 0; i < m; i++) q[i] = f(p[i]);
    };
    switch (op) {
      case Unary::scale: return kernels_.scale(p, a, q, m);
      case Unary::add_scalar: return each([a](float v) { return v + a; });
      case Unary::silu: return kernels_.silu_mul(p, nullptr, q, m);
      case Unary::gelu_tanh: return kernels_.gelu_tanh_mul(p, nullptr, q, m);
      case Unary::gelu_erf: return kernels_.gelu_erf_mul(p, nullptr, q, m);
      case Unary::softcap: return kernels_.softcap(p, a, q, m);
      case Unary::relu: return each([](float v) { return v > 0 ? v : 0; });
      case Unary::relu_squared: return each([](float v) { return v > 0 ? v * v : 0; });
      case Unary::sigmoid: return each([](float v) { return 1 / (1 + std::exp(-v)); });
      case Unary::tanh: return each([](float v) { return std::tanh(v); });
      case Unary::exp: return each([](float v) { return std::exp(v); });
      case Unary::log: return each([](float v) { return std::log(v); });
      case Unary::sqrt: return each([](float v) { return std::sqrt(v); });
    }
  });
}

void CpuBackend::binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const bool flat = a.is_contiguous() && b.is_contiguous() && a.dtype() == Dtype::f32 && b.dtype() == Dtype::f32;
  const int64_t n = out.elements();
  if (flat && (op == Binary::add || op == Binary::mul)) {
    auto f = op == Binary::add ? kernels_.add : kernels_.mul;
    return split(n, n, [&](int64_t i, int64_t e) { f(a.data() + i, b.data() + i, out.data() + i, size_t(e - i)); });
  }
  Tensor fa = a.dtype() == Dtype::f32 ? a : Tensor(), fb = b.dtype() == Dtype::f32 ? b : Tensor();
  if (!fa) copy(a, fa = Tensor::empty(*this, a.shape()));
  if (!fb) copy(b, fb = Tensor::empty(*this, b.shape()));
  if (rehearsing_) return;
  const float *x = fa.data(), *y = fb.data();
  float* z = out.data();
  auto each = [&](auto f) {
    walk<3>(out.shape(), {&fa, &fb, &out}, [&](const int64_t* at) { z[at[2]] = f(x[at[0]], y[at[1]]); });
  };
  switch (op) {
    case Binary::add: return each([](float p, float q) { return p + q; });
    case Binary::sub: return each([](float p, float q) { return p - q; });
    case Binary::mul: return each([](float p, float q) { return p * q; });
    case Binary::div: return each([](float p, float q) { return p / q; });
  }
}

void CpuBackend::add_scaled(const Tensor& x, float s, const Tensor& out) {
  kernels_.fma_scalar(x.data(), s, out.data(), out.data(), size_t(x.elements()));
}

void CpuBackend::reduce(Reduce op, const Tensor& x, const Tensor& out) {
  const int64_t d = x.dim(-1), n = out.elements();
  for (int64_t r = 0; r < n; r++) {
    const float* p = x.data() + r * d;
    // 16 partial results (element mod 16) and the fixed tree, as every row reduction; sums in double, so that long rows are right.
    double lane[16] = {};
    float top = d ? p[0] : 0;
    for (int64_t i = 0; i < d; i++) {
      lane[i % 16] += double(p[i]);
      if (p[i] > top || std::isnan(p[i])) top = p[i];
      if (std::isnan(top)) break;
    }
    for (int h = 8; h; h >>= 1)
      for (int i = 0; i < h; i++) lane[i] += lane[i + h];
    out.data()[r] = op == Reduce::max ? top : float(op == Reduce::mean ? lane[0] / double(d) : lane[0]);
  }
}

void CpuBackend::softmax(const Tensor& x, const Tensor& out) {
  const int64_t d = x.dim(-1), rows = d ? x.elements() / d : 0;
  if (rehearsing_) {
    for (int64_t i = 0; i < rows * d; i++) out.data()[i] = i / d < equal_ ? 0.0f : float(i % d);
    return;
  }
  split(rows, x.elements(), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; r++) {
      std::memcpy(out.data() + r * d, x.data() + r * d, size_t(d) * sizeof(float));
      kernels_.softmax(out.data() + r * d, int(d));
    }
  });
}

void CpuBackend::norm_rows(const float* x, const NormSpec& n, float* out, int64_t rows, int64_t d) const {
  const float *w = n.w ? n.w->data() : nullptr, *bias = n.b ? n.b->data() : nullptr;
  for (; rows > 0; rows--, x += d, out += d)
    if (n.layer) kernels_.layer_norm(x, w, bias, n.eps, out, int(d));
    else kernels_.rms_norm(x, w, n.offset, n.eps, out, int(d));
}

void CpuBackend::norm(const Tensor& x, const NormSpec& n, const Tensor& out) {
  const int64_t d = x.dim(-1), rows = d ? x.elements() / d : 0;
  split(rows, x.elements(), [&](int64_t b, int64_t e) { norm_rows(x.data() + b * d, n, out.data() + b * d, e - b, d); });
}

void CpuBackend::matmul(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (out.rank() > 2) {
    for (int64_t i = 0; i < out.dim(0); i++) matmul(a.select(0, i), b.select(0, i), out.select(0, i));
    return;
  }
  Tensor x = a.contiguous(), w = b.transpose(0, 1).contiguous();
  const LinearSpec spec{&w, nullptr};
  Tensor y = out;
  linear(x, nullptr, {&spec, 1}, nullptr, {&y, 1});
}

void CpuBackend::embed(const Tensor& table, std::span<const int32_t> ids, float s, const Tensor& out) {
  const int64_t d = table.dim(1);
  for (size_t i = 0; i < ids.size() && !rehearsing_; i++) {
    float* row = out.data() + int64_t(i) * d;
    if (table.interleaved()) read_row(table, ids[i], row);
    else copy(table.select(0, ids[i]), out.select(0, int64_t(i)));
    if (s != 1) kernels_.scale(row, s, row, size_t(d));
  }
}

Family CpuBackend::input_family(Dtype t) const {
  const Family f = info(t).family;
  if (f == Family::none) fail(Code::unsupported, "linear: a weight of type ", tealight::name(t), " cannot be multiplied");
  return int8_activations_ && (f == Family::block32 || f == Family::block256) ? f : Family::floating;
}

size_t CpuBackend::multiply_scratch(int K, int T) {
  return align_up(kernels::matmul_scratch_bytes(K, T), 64) + align_up(size_t(K) * 16 * sizeof(float), 64);
}

void CpuBackend::multiply(const Tensor& w, const void* act, const float* x, int T, float* y, size_t ldy, int r0, int r1,
                          std::byte* scratch) const {
  const int K = int(w.dim(1));
  const auto f_float = kernels_.matmul_float[int(w.dtype())];
  std::byte* laid_out = scratch + align_up(kernels::matmul_scratch_bytes(K, T), 64);   // 16 rows of K values
  if (act) {
    const auto f_int = w.interleaved() ? kernels_.matmul_x16 : kernels_.matmul_int;
    f_int[int(w.dtype())](w.data<void>(), K, act, T, y, ldy, r0, r1, scratch);
  } else if (w.interleaved()) {   // 16 rows at a time are laid out as plain ones
    const size_t group = 16 * x16_row_bytes(w.dtype(), size_t(K)), stride = row_bytes(w.dtype(), size_t(K));
    for (int r = r0; r < r1; r += 16) {
      const int m = std::min(16, r1 - r);
      for (int j = 0; j < m; j++)
        kernels::extract_x16(w.dtype(), w.data<char>() + size_t(r / 16) * group, j, K, laid_out + size_t(j) * stride);
      f_float(laid_out, stride, K, x, size_t(K), T, y + r, ldy, 0, m, scratch);
    }
  } else if (w.stride(1) == 1 || K == 1) {
    const size_t stride = is_quantized(w.dtype()) ? row_bytes(w.dtype(), size_t(K)) : size_t(w.stride(0) * info(w.dtype()).bytes);
    f_float(w.data<void>(), stride, K, x, size_t(K), T, y, ldy, r0, r1, scratch);
  } else {   // a transposed view: 16 columns at a time are laid out as rows
    auto* transposed = reinterpret_cast<float*>(laid_out);
    for (int r = r0; r < r1; r += 16) {
      const int m = std::min(16, r1 - r);
      for (int k = 0; k < K; k++)
        for (int j = 0; j < m; j++) {
          const int64_t at = (r + j) * w.stride(0) + k * w.stride(1);
          float* to = transposed + j * K + k;
          if (w.dtype() == Dtype::f32) *to = w.data()[at];
          else kernels_.widen[int(w.dtype())](w.data<char>() + at * info(w.dtype()).bytes, to, 1);
        }
      kernels_.matmul_float[int(Dtype::f32)](transposed, size_t(K) * sizeof(float), K, x, size_t(K), T, y + r, ldy, 0, m, scratch);
    }
  }
}

void CpuBackend::linear(const Tensor& x, const NormSpec* n, std::span<const LinearSpec> ws, const Tensor* residual,
                        std::span<Tensor> ys) {
  const int T = int(x.dim(0)), K = int(x.dim(1));
  if (K == 0)   // empty sums; kernels want at least one value
    for (Tensor& y : ys) fill(y, 0);
  if (T == 0 || K == 0) return;
  // The norm, and one quantization for each integer family among the weights; threads take whole tiles of tokens.
  const Tensor in = x.contiguous(), h = n ? Tensor::empty(*this, x.shape()) : in;
  Tensor act[2];
  for (const LinearSpec& w : ws) {
    const Family f = input_family(w.w->dtype());
    if (Tensor& a = act[f == Family::block256]; f != Family::floating && !a) a = Tensor::empty(*this, {int64_t(kernels::act_bytes(f, T, K))}, Dtype::u8);
  }
  constexpr int kTile = kernels::kActTile;
  const auto prepare = [&](int64_t begin, int64_t end) {
    const int t = int(begin) * kTile, rows = std::min(int(end) * kTile, T) - t;
    float* to = h.data() + int64_t(t) * K;
    if (n) norm_rows(in.data() + int64_t(t) * K, *n, to, rows, K);
    for (Family f : {Family::block32, Family::block256})
      if (const Tensor& a = act[f == Family::block256]; a && !kernels_.quantize(f, to, size_t(K), rows, K, a.data<std::byte>() + kernels::act_bytes(f, t, K)))
        fault_.store(true, std::memory_order_relaxed);
  };
  if (n || act[0] || act[1]) split((T + kTile - 1) / kTile, int64_t(T) * K, prepare);

  // Work is cut into units of 16 rows over all weights, in equal contiguous shares.
  int64_t units = 0, work = 0;
  for (const LinearSpec& w : ws) units += (w.w->dim(0) + 15) / 16, work += w.w->dim(0) * K * T;
  const size_t per_thread = multiply_scratch(K, T);
  std::byte* all_scratch = scratch(per_thread);
  if (rehearsing_) return;

  auto share = [&](int thread, int threads) {
    std::byte* mine = all_scratch + size_t(thread) * per_thread;
    int64_t begin = units * thread / threads, end = units * (thread + 1) / threads, first = 0;
    for (size_t i = 0; i < ws.size() && first < end; i++) {
      const Tensor& w = *ws[i].w;
      const int64_t rows = w.dim(0), count = (rows + 15) / 16;
      const int r0 = int(std::max<int64_t>(begin - first, 0) * 16), r1 = int(std::min(rows, (end - first) * 16));
      first += count;
      if (r0 >= r1) continue;
      float* y = ys[i].data();
      const size_t ldy = size_t(ys[i].stride(0));
      const Family f = input_family(w.dtype());
      const void* a = f == Family::floating ? nullptr : act[f == Family::block256].data<void>();
      multiply(w, a, h.data(), T, y, ldy, r0, r1, mine);
      const float* bias = ws[i].b ? ws[i].b->data() + r0 : nullptr;
      for (int t = 0; t < T && (bias || residual); t++) {
        float* row = y + size_t(t) * ldy + r0;
        if (bias) kernels_.add(row, bias, row, size_t(r1 - r0));
        if (residual) kernels_.add(residual->data() + int64_t(t) * rows + r0, row, row, size_t(r1 - r0));
      }
    }
  };
  if (work <= kSmall || pool_.threads() == 1) share(0, 1);
  else pool_.run([&](int t) { share(t, pool_.threads()); });
}

void CpuBackend::gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) {
  const int64_t n = gate.elements();
  split(n, n, [&](int64_t b, int64_t e) {
    const float *g = gate.data() + b, *u = up.data() + b;
    float* y = out.data() + b;
    const size_t m = size_t(e - b);
    switch (act) {
      case Activation::silu: return kernels_.silu_mul(g, u, y, m);
      case Activation::gelu_tanh: return kernels_.gelu_tanh_mul(g, u, y, m);
      case Activation::gelu_erf: return kernels_.gelu_erf_mul(g, u, y, m);
      case Activation::relu:
        for (size_t i = 0; i < m; i++) y[i] = g[i] > 0 ? g[i] * u[i] : 0;
        return;
      case Activation::relu_squared:
        for (size_t i = 0; i < m; i++) y[i] = g[i] > 0 ? g[i] * g[i] * u[i] : 0;
        return;
    }
  });
}

void CpuBackend::rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool neox) {
  const int64_t heads = x.dim(1), half = cos.dim(1);
  split(x.dim(0), x.elements(), [&](int64_t b, int64_t e) {
    for (int64_t t = b; t < e; t++)
      for (int64_t h = 0; h < heads; h++)
        kernels_.rope(x.data() + t * x.stride(0) + h * x.stride(1), cos.data() + t * half, sin.data() + t * half, int(2 * half), neox);
  });
}

}  // namespace tealight
