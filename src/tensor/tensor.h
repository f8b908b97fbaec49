// Tensor: a small value (dtype, shape, strides, offset) over reference-counted storage on a device.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/types.h"

namespace tealight {

class Backend;

constexpr int kMaxRank = 8;

// Up to eight extents, outermost first, inline.
struct Shape {
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};

  Shape() = default;
  Shape(std::initializer_list<int64_t> d);
  int64_t operator[](int i) const { return dims[size_t(i < 0 ? i + rank : i)]; }
  int64_t& operator[](int i) { return dims[size_t(i < 0 ? i + rank : i)]; }
  int64_t elements() const;
  bool operator==(const Shape& o) const;
  std::string str() const;   // "[2, 3]"
};

// A block of device memory: owned (from the device's pool) or a view into something that `keep` holds alive.
struct Storage {
  std::atomic<uint32_t> count{1};
  Backend* device = nullptr;
  void* data = nullptr;
  size_t bytes = 0;                    // usable bytes
  std::shared_ptr<const void> keep;    // views only
};

// Copying a Tensor shares its storage. An undefined tensor (default-constructed) has no storage and rank 0.
// Quantized tensors have whole blocks along the last dimension: views may cut the other dimensions only.
// Interleaved ones lie in groups of 16 rows (kernels/cpu/x16.h): [rows, K], or a stack [n, rows, K] with rows a multiple of 16.
// Views cut them between groups only, and nothing but their rows' values can be read (copy, embed) or multiplied (linear).
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& o) noexcept;
  Tensor(Tensor&& o) noexcept;
  Tensor& operator=(Tensor o) noexcept;
  ~Tensor() { release(); }

  // Uninitialized, contiguous.
  static Tensor empty(Backend& device, const Shape& shape, Dtype dtype = Dtype::f32);
  static Tensor zeros(Backend& device, const Shape& shape, Dtype dtype = Dtype::f32);
  // f32 values, copied.
  static Tensor from(Backend& device, std::span<const float> values, const Shape& shape);
  // A view of memory that `keep` holds alive (mapped weights): never written. The device must be able to read host memory.
  // interleaved: the data lies in the x16 layout, 64-byte aligned. Errors: Code::shape where type or shape do not allow that.
  static Tensor view(Backend& device, const void* data, const Shape& shape, Dtype dtype, std::shared_ptr<const void> keep,
                     bool interleaved = false);

  explicit operator bool() const { return storage_ != nullptr; }
  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t stride(int i) const { return strides_[size_t(i < 0 ? i + shape_.rank : i)]; }   // in elements
  int64_t elements() const { return shape_.elements(); }
  bool is_contiguous() const;                              // row-major and not interleaved
  bool interleaved() const { return interleaved_; }
  size_t bytes() const;                                    // that its elements take, whole groups where it is interleaved
  static size_t interleaved_bytes(const Shape& shape, Dtype dtype);
  Backend& device() const { return *storage_->device; }

  // Address of the first element, as the device sees it.
  template <class T = float>
  T* data() const { return reinterpret_cast<T*>(static_cast<char*>(storage_->data) + offset_bytes_); }

  // Views; nothing is copied. Errors: Code::shape, naming the view and the shape.
  Tensor slice(int dim, int64_t begin, int64_t end) const;
  Tensor select(int dim, int64_t index) const;             // slice of one, without that dimension
  Tensor transpose(int a, int b) const;
  Tensor expand(const Shape& shape) const;                 // broadcasts dimensions of extent one (and missing leading ones)
  Tensor reshape(const Shape& shape) const;                // contiguous tensors only

  // Copies. to_vector: f32 values in row-major order, widened from any float or quantized type.
  Tensor contiguous() const;                               // itself when it is contiguous already
  std::vector<float> to_vector() const;

  // The node of the active tape that made this tensor; null outside of training. See autograd.h.
  void* node = nullptr;

 private:
  void release() noexcept;
  Storage* storage_ = nullptr;
  int64_t offset_bytes_ = 0;
  Shape shape_;
  std::array<int64_t, kMaxRank> strides_{};
  Dtype dtype_ = Dtype::f32;
  bool interleaved_ = false;
};

// "linear: x [2, 3] and w [4, 5] do not fit": for the operator's own checks.
[[noreturn]] void shape_error(std::string_view op, std::string_view what, const Shape& a, const Shape& b);

}  // namespace tealight
