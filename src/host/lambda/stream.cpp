#include "src/host/lambda/stream.h"

#include "src/base/base64.h"
#include "src/base/error.h"
#include "src/host/http.h"

namespace tealight::lambda {
namespace {

constexpr int64_t kCoalesceUs = 20'000;
constexpr size_t kCoalesceBytes = 1024;

}  // namespace

void ResponseStream::prepare(std::string_view id, std::string_view invocation_id, std::string_view content_type, std::string prelude,
                             int64_t deadline_us) {
  begun_ = broken_ = false;
  path_ = cat("/2018-06-01/runtime/invocation/", id, "/response");
  headers_.clear();
  append_header(headers_, "Content-Type", content_type);
  append_header(headers_, "Lambda-Runtime-Function-Response-Mode", "streaming");
  append_header(headers_, "Transfer-Encoding", "chunked");
  append_header(headers_, "Trailer", cat(kErrorTypeHeader, ", ", kErrorBodyHeader));
  if (!invocation_id.empty()) append_header(headers_, "Lambda-Runtime-Invocation-Id", invocation_id);
  prelude_ = std::move(prelude);
  pending_.clear();
  deadline_us_ = deadline_us;
}

void ResponseStream::begin() {
  begun_ = true;
  out_.clear();
  broken_ = !api_.open();
  api_.append_head(out_, "POST", path_, headers_);
  out_ += "\r\n";
  append_chunk(out_, prelude_);
  sent_us_ = 0;
}

bool ResponseStream::flush() {
  append_chunk(out_, pending_);
  pending_.clear();
  sent_us_ = monotonic_us();
  if (!broken_) broken_ = !api_.write(out_, deadline_us_);
  out_.clear();
  return !broken_;
}

bool ResponseStream::gone() { return begun_ && (broken_ || !api_.quiet()); }

bool ResponseStream::write(std::string_view piece) {
  if (!begun_) begin();
  if (broken_) return false;
  pending_ += piece;
  const bool first = sent_us_ == 0;
  if (!first && !api_.quiet()) return false;
  if (first || pending_.size() >= kCoalesceBytes || monotonic_us() - sent_us_ >= kCoalesceUs) return flush();
  return true;
}

bool ResponseStream::fail(std::string_view type, std::string_view body) {
  std::string trailers;
  append_header(trailers, kErrorTypeHeader, type);
  append_header(trailers, kErrorBodyHeader, base64(body));
  return finish(trailers);
}

bool ResponseStream::finish(std::string_view trailers) {
  if (!begun_) begin();
  append_chunk(out_, pending_);
  pending_.clear();
  out_ += "0\r\n";
  out_ += trailers;
  out_ += "\r\n";
  const bool open = !broken_ && api_.write(out_, deadline_us_) && api_.receive();
  out_.clear();
  begun_ = false;
  return open;
}

}  // namespace tealight::lambda
