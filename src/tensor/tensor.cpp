#include "src/tensor/tensor.h"

#include <utility>

#include "src/base/error.h"
#include "src/tensor/backend.h"
#include "src/tensor/ops.h"

namespace tealight {

Shape::Shape(std::initializer_list<int64_t> d) {
  if (d.size() > size_t(kMaxRank)) fail(Code::shape, "shape of rank ", d.size(), ": the limit is ", kMaxRank);
  for (int64_t v : d) dims[size_t(rank++)] = v;
}

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= dims[size_t(i)];
  return n;
}

bool Shape::operator==(const Shape& o) const {
  if (rank != o.rank) return false;
  for (int i = 0; i < rank; i++)
    if (dims[size_t(i)] != o.dims[size_t(i)]) return false;
  return true;
}

std::string Shape::str() const {
  std::string s = "[";
  for (int i = 0; i < rank; i++) s += cat(i ? ", " : "", dims[size_t(i)]);
  return s + "]";
}

void shape_error(std::string_view op, std::string_view what, const Shape& a, const Shape& b) {
  fail(Code::shape, op, ": ", what, ": ", a.str(), " and ", b.str());
}

Tensor::Tensor(const Tensor& o) noexcept
    : node(o.node), storage_(o.storage_), offset_bytes_(o.offset_bytes_), shape_(o.shape_), strides_(o.strides_), dtype_(o.dtype_),
      interleaved_(o.interleaved_) {
  if (storage_) storage_->count.fetch_add(1, std::memory_order_relaxed);
}

Tensor::Tensor(Tensor&& o) noexcept
    : node(o.node), storage_(std::exchange(o.storage_, nullptr)), offset_bytes_(o.offset_bytes_), shape_(o.shape_),
      strides_(o.strides_), dtype_(o.dtype_), interleaved_(o.interleaved_) {}

Tensor& Tensor::operator=(Tensor o) noexcept {
  std::swap(storage_, o.storage_);
  node = o.node;
  offset_bytes_ = o.offset_bytes_;
  shape_ = o.shape_;
  strides_ = o.strides_;
  dtype_ = o.dtype_;
  interleaved_ = o.interleaved_;
  return *this;
}

void Tensor::release() noexcept {
  if (storage_ && storage_->count.fetch_sub(1, std::memory_order_acq_rel) == 1) storage_->device->free(storage_);
  storage_ = nullptr;
}

namespace {
std::array<int64_t, kMaxRank> row_major(const Shape& s) {
  std::array<int64_t, kMaxRank> strides{};
  int64_t n = 1;
  for (int i = s.rank - 1; i >= 0; i--) {
    strides[size_t(i)] = n;
    n *= s[i];
  }
  return strides;
}
void check_dim(const char* op, int dim, const Shape& s) {
  if (dim < 0 || dim >= s.rank) fail(Code::shape, op, ": dimension ", dim, " of ", s.str());
}
}  // namespace

Tensor Tensor::empty(Backend& device, const Shape& shape, Dtype dtype) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.strides_ = row_major(shape);
  t.storage_ = device.allocate(row_bytes(dtype, size_t(shape.elements())));
  return t;
}

Tensor Tensor::zeros(Backend& device, const Shape& shape, Dtype dtype) {
  Tensor t = empty(device, shape, dtype);
  device.fill(t, 0);
  return t;
}

Tensor Tensor::from(Backend& device, std::span<const float> values, const Shape& shape) {
  if (int64_t(values.size()) != shape.elements()) fail(Code::shape, "from: ", values.size(), " values for ", shape.str());
  Tensor t = empty(device, shape);
  device.upload(values.data(), t.data<void>(), values.size_bytes());
  return t;
}

Tensor Tensor::view(Backend& device, const void* data, const Shape& shape, Dtype dtype, std::shared_ptr<const void> keep,
                    bool interleaved) {
  if (interleaved) {
    if (!has_x16(dtype)) fail(Code::shape, "view: values of type ", name(dtype), " cannot be interleaved");
    const bool stack = shape.rank == 3 && shape[1] % 16 == 0;
    if ((shape.rank != 2 && !stack) || shape[-1] == 0 || shape[-1] % info(dtype).block)
      fail(Code::shape, "view: ", shape.str(), " cannot be interleaved: rows of whole blocks, in a stack multiples of 16 of them");
    if (reinterpret_cast<uintptr_t>(data) % 64) fail(Code::shape, "view: interleaved data is not aligned to 64 bytes");
  }
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.strides_ = row_major(shape);
  auto* s = new Storage;
  s->device = &device;
  s->data = const_cast<void*>(data);
  t.interleaved_ = interleaved;
  s->bytes = t.bytes();
  s->keep = std::move(keep);
  if (!s->keep) s->keep = std::shared_ptr<const void>(data, [](const void*) {});   // marks a view
  t.storage_ = s;
  return t;
}

size_t Tensor::bytes() const { return interleaved_ ? interleaved_bytes(shape_, dtype_) : row_bytes(dtype_, size_t(elements())); }

size_t Tensor::interleaved_bytes(const Shape& s, Dtype dtype) {
  const size_t rows = size_t(s.rank == 3 ? s[0] * s[1] : s[0]);
  return (rows + 15) / 16 * 16 * x16_row_bytes(dtype, size_t(s[-1]));
}

bool Tensor::is_contiguous() const {
  if (interleaved_) return false;
  int64_t n = 1;
  for (int i = shape_.rank - 1; i >= 0; i--) {
    if (shape_[i] != 1 && stride(i) != n) return false;
    n *= shape_[i];
  }
  return true;
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t end) const {
  check_dim("slice", dim, shape_);
  if (begin < 0 || begin > end || end > shape_[dim]) fail(Code::shape, "slice: ", begin, "..", end, " of dimension ", dim, " of ", shape_.str());
  if (is_quantized(dtype_) && dim == shape_.rank - 1 && end - begin != shape_[dim])
    fail(Code::shape, "slice: the last dimension of a quantized tensor cannot be cut");
  Tensor t = *this;
  t.shape_[dim] = end - begin;
  if (interleaved_) {
    if (dim == shape_.rank - 1) return t;            // all of it
    if (dim == shape_.rank - 2 && (begin % 16 || (end % 16 && end != shape_[dim])))
      fail(Code::shape, "slice: rows ", begin, "..", end, " of ", shape_.str(), ", which is interleaved, do not lie between groups of 16");
    const int64_t rows = dim == shape_.rank - 2 ? begin : begin * (stride(0) / stride(1));
    t.offset_bytes_ += rows * int64_t(x16_row_bytes(dtype_, size_t(shape_[-1])));
    return t;
  }
  const int64_t elements = begin * stride(dim);
  t.offset_bytes_ += elements / info(dtype_).block * info(dtype_).bytes;
  return t;
}

Tensor Tensor::select(int dim, int64_t index) const {
  check_dim("select", dim, shape_);
  if (interleaved_ && (dim != 0 || shape_.rank != 3))
    fail(Code::shape, "select: a row of ", shape_.str(), ", which is interleaved, is no view");
  Tensor t = slice(dim, index, index + 1);
  for (int i = dim; i + 1 < t.shape_.rank; i++) {
    t.shape_[i] = t.shape_[i + 1];
    t.strides_[size_t(i)] = t.strides_[size_t(i + 1)];
  }
  t.shape_.rank--;
  return t;
}

Tensor Tensor::transpose(int a, int b) const {
  check_dim("transpose", a, shape_);
  check_dim("transpose", b, shape_);
  if (is_quantized(dtype_)) fail(Code::shape, "transpose: a quantized tensor has no transposed view");
  Tensor t = *this;
  std::swap(t.shape_[a], t.shape_[b]);
  std::swap(t.strides_[size_t(a)], t.strides_[size_t(b)]);
  return t;
}

Tensor Tensor::expand(const Shape& shape) const {
  if (interleaved_ && !(shape == shape_)) shape_error("expand", "an interleaved tensor", shape_, shape);
  Tensor t = *this;
  t.shape_ = shape;
  const int lead = shape.rank - shape_.rank;
  if (lead < 0) shape_error("expand", "too few dimensions", shape_, shape);
  for (int i = 0; i < shape.rank; i++) {
    if (i < lead) {
      t.strides_[size_t(i)] = 0;
      continue;
    }
    if (shape_[i - lead] == shape[i]) t.strides_[size_t(i)] = stride(i - lead);
    else if (shape_[i - lead] == 1) t.strides_[size_t(i)] = 0;
    else shape_error("expand", "extents differ", shape_, shape);
  }
  return t;
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (shape.elements() != elements()) shape_error("reshape", "element counts differ", shape_, shape);
  if (!is_contiguous()) fail(Code::shape, "reshape: ", shape_.str(), " is not contiguous");
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = row_major(shape);
  return t;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : copy(*this); }

std::vector<float> Tensor::to_vector() const {
  Tensor c = dtype_ == Dtype::f32 && is_contiguous() ? *this : copy(*this);
  std::vector<float> v(static_cast<size_t>(elements()));
  device().download(c.data<void>(), v.data(), v.size() * sizeof(float));
  return v;
}

}  // namespace tealight
