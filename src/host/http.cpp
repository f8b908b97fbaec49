#include "src/host/http.h"

#include <algorithm>

#include "src/base/error.h"

namespace tealight {
namespace {

constexpr size_t kMaxChunkLine = 256;     // a chunk's size with its extensions, which nobody reads
constexpr int kMaxInterim = 16;           // 1xx responses before the real one

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

// RFC 9110, 5.6.2: names of methods and fields.
bool is_token(std::string_view s) {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return !s.empty() && std::all_of(s.begin(), s.end(), [&](char c) {
    return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || marks.find(c) != marks.npos;
  });
}
// RFC 9110, 5.5: no control characters but the tab.
bool is_field_text(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return c == '\t' || (uint8_t(c) >= 0x20 && c != 0x7f); });
}
std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// Is `word` one of the elements of a comma-separated list?
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (same_word(trim(list.substr(0, comma)), word)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// All digits of the base, at least one, within 63 bits.
bool parse_size(std::string_view s, unsigned base, uint64_t& out) {
  out = 0;
  for (char c : s) {
    const char l = lower(c);
    const unsigned digit = is_digit(c) ? unsigned(c - '0') : l >= 'a' && l <= 'f' ? unsigned(l - 'a' + 10) : 99;
    if (digit >= base || out >> 59) return false;   // base <= 16: no overflow below 2^59
    out = out * base + digit;
  }
  return !s.empty();
}

}  // namespace

bool HttpParser::started() const { return !head_.empty() || part_ != Part::start_line || interim_ > 0; }
std::string_view HttpParser::method() const { return text(method_); }
std::string_view HttpParser::target() const { return text(target_); }
std::string_view HttpParser::path() const { return text(path_); }
std::string_view HttpParser::query() const { return text(query_); }
int HttpParser::status() const { return status_; }
bool HttpParser::expects_continue() const { return continue_; }

HttpParser::Span HttpParser::span(std::string_view within_head) const {
  const size_t begin = size_t(within_head.data() - head_.data());
  return {uint32_t(begin), uint32_t(begin + within_head.size())};
}

const HttpParser::Field* HttpParser::find(std::string_view name, size_t begin, size_t end) const {
  for (size_t i = begin; i < end; i++)
    if (same_word(text(fields_[i].name), name)) return &fields_[i];
  return nullptr;
}
std::string_view HttpParser::header(std::string_view name) const {
  const Field* f = find(name, 0, n_headers_);
  return f ? text(f->value) : std::string_view();
}
bool HttpParser::has_header(std::string_view name) const { return find(name, 0, n_headers_); }
std::string_view HttpParser::trailer(std::string_view name) const {
  const Field* f = find(name, n_headers_, fields_.size());
  return f ? text(f->value) : std::string_view();
}

bool HttpParser::keep_alive() const {
  return state_ == State::done && part_ != Part::rest && !close_ && (!minor_0_ || keep_);
}

void HttpParser::refuse(int status, std::string_view what) {
  state_ = State::failed;
  error_status_ = status;
  error_ = what;
}

// Forgets everything about the message but how much came before it.
void HttpParser::begin_message() {
  state_ = State::head;
  part_ = Part::start_line;
  head_.clear();
  fields_.clear();
  line_begin_ = n_headers_ = 0;
  method_ = target_ = path_ = query_ = {};
  status_ = 0;
  minor_0_ = chunked_ = has_length_ = close_ = keep_ = continue_ = false;
  left_ = 0;
}

void HttpParser::reset() {
  begin_message();
  interim_ = error_status_ = 0;
  error_.clear();
  body_.clear();
  if (body_.capacity() > (1 << 20)) std::string().swap(body_);
}

size_t HttpParser::feed(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && (state_ == State::head || state_ == State::body)) {
    const std::string_view more = bytes.substr(used);
    const bool data = part_ == Part::fixed_body || part_ == Part::chunk_data || part_ == Part::rest;
    used += data ? feed_data(more) : feed_line(more);
  }
  return used;
}

void HttpParser::end_of_input() {
  if (state_ == State::done || state_ == State::failed) return;
  if (part_ == Part::rest) state_ = State::done;
  else refuse(400, started() ? "the connection ended inside a message" : "the connection ended before a message");
}

size_t HttpParser::feed_line(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  const bool whole = end != bytes.npos;
  const bool chunk_end = part_ == Part::chunk_end, chunk_line = part_ == Part::chunk_size || chunk_end;
  const size_t most = chunk_end ? line_begin_ + 2 : chunk_line ? line_begin_ + kMaxChunkLine : limits_.head_bytes;
  const size_t room = most - head_.size();
  const size_t take = whole ? end + 1 : bytes.size();
  if (take > room) {
    refuse(chunk_line ? 400 : 431, chunk_end    ? "a chunk is longer than its size says"
                                   : chunk_line ? "a chunk's size line is too long"
                                                : "the head is larger than the limit");
    return room;
  }
  head_.append(bytes.substr(0, take));
  if (!whole) return take;
  const std::string_view line = std::string_view(head_).substr(line_begin_);
  if (!line.ends_with("\r\n")) refuse(400, "a line ends in LF without CR");
  else take_line(line.substr(0, line.size() - 2));
  if (chunk_line && state_ == State::body) head_.resize(line_begin_);
  line_begin_ = head_.size();
  return take;
}

size_t HttpParser::feed_data(std::string_view bytes) {
  const size_t take = part_ == Part::rest ? bytes.size() : size_t(std::min<uint64_t>(bytes.size(), left_));
  if (take > limits_.body_bytes - body_.size()) {
    refuse(413, "the body is larger than the limit");
    return take;
  }
  body_.append(bytes.substr(0, take));
  if (part_ == Part::rest) return take;
  left_ -= take;
  if (left_ == 0 && part_ == Part::chunk_data) part_ = Part::chunk_end;
  else if (left_ == 0) state_ = State::done;
  return take;
}

void HttpParser::take_line(std::string_view line) {
  switch (part_) {
    case Part::start_line:
      if (line.empty() && kind_ == Kind::request) return;   // RFC 9112, 2.2; the head's limit counts them
      part_ = Part::field;
      return kind_ == Kind::request ? take_request_line(line) : take_status_line(line);
    case Part::field: return line.empty() ? end_head() : take_field(line);
    case Part::chunk_size: return take_chunk_size(line);
    case Part::chunk_end: part_ = Part::chunk_size; return;   // its two bytes were CR and LF
    default:                                                 // a trailer
      if (line.empty()) state_ = State::done;
      else take_field(line);
  }
}

void HttpParser::take_version(std::string_view v) {
  const bool version = v.size() == 8 && v.starts_with("HTTP/") && is_digit(v[5]) && v[6] == '.' && is_digit(v[7]);
  if (!version) return refuse(400, "expected HTTP/1.1 in the first line");
  if (v[5] != '1') return refuse(505, "only HTTP/1.0 and HTTP/1.1 are understood");
  minor_0_ = v[7] == '0';
}

void HttpParser::take_request_line(std::string_view line) {
  const size_t a = line.find(' '), b = line.rfind(' ');
  if (a == line.npos || b <= a + 1) return refuse(400, "expected METHOD TARGET HTTP/1.1");
  const std::string_view method = line.substr(0, a), target = line.substr(a + 1, b - a - 1);
  const bool visible = std::all_of(target.begin(), target.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
  if (!is_token(method) || !visible) return refuse(400, "the first line has characters that are not allowed there");
  take_version(line.substr(b + 1));
  method_ = span(method);
  target_ = span(target);
  std::string_view path = target;
  const size_t scheme = std::min(path.find("://"), path.size() - 1);
  if (same_word(path.substr(0, scheme), "http") || same_word(path.substr(0, scheme), "https")) {
    path.remove_prefix(std::min(path.find_first_of("/?", scheme + 3), path.size()));
  } else if (path[0] != '/' && path != "*") {
    return refuse(400, "the target is no path");
  }
  const size_t question = std::min(path.find('?'), path.size());
  path_ = span(path.substr(0, question));
  query_ = span(path.substr(std::min(question + 1, path.size())));
}

void HttpParser::take_status_line(std::string_view line) {
  take_version(line.substr(0, std::min(line.find(' '), line.size())));
  if (state_ == State::failed) return;
  const bool code = line.size() >= 12 && is_digit(line[9]) && is_digit(line[10]) && is_digit(line[11]) && line[9] != '0';
  if (!code || (line.size() > 12 && line[12] != ' ') || !is_field_text(line)) return refuse(400, "expected HTTP/1.1 STATUS REASON");
  status_ = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
}

void HttpParser::take_field(std::string_view line) {
  if (fields_.size() >= limits_.headers) return refuse(431, "there are more headers than the limit");
  const size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) return refuse(400, "a header is not NAME: VALUE");
  const std::string_view value = trim(line.substr(colon + 1));
  if (!is_field_text(value)) return refuse(400, "a header's value has control characters");
  fields_.push_back({span(line.substr(0, colon)), span(value)});
}

// What the headers say about the message's end, and whether they contradict each other (RFC 9112, 6.3).
bool HttpParser::check_fields() {
  const auto bad = [&](int status, std::string_view what) {
    refuse(status, what);
    return false;
  };
  int hosts = 0;
  for (const Field& f : fields_) {
    const std::string_view name = text(f.name), value = text(f.value);
    if (same_word(name, "content-length")) {
      uint64_t length = 0;
      if (!parse_size(value, 10, length)) return bad(400, "Content-Length is no number");
      if (has_length_ && length != left_) return bad(400, "two values of Content-Length differ");
      has_length_ = true;
      left_ = length;
    } else if (same_word(name, "transfer-encoding")) {
      if (chunked_ || !same_word(value, "chunked")) return bad(501, "only the transfer coding chunked is understood");
      chunked_ = true;
    } else if (same_word(name, "connection")) {
      close_ = close_ || has_word(value, "close");
      keep_ = keep_ || has_word(value, "keep-alive");
    } else if (same_word(name, "host")) {
      hosts++;
    } else if (same_word(name, "expect") && kind_ == Kind::request && !minor_0_) {
      if (!same_word(value, "100-continue")) return bad(417, "only Expect: 100-continue is understood");
      continue_ = true;
    }
  }
  if (chunked_ && (has_length_ || minor_0_)) return bad(400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
  if (kind_ == Kind::request && hosts != 1 && (hosts > 1 || !minor_0_)) return bad(400, "expected one Host header");
  if (has_length_ && left_ > limits_.body_bytes) return bad(413, "the body is larger than the limit");
  return true;
}

void HttpParser::end_head() {
  n_headers_ = fields_.size();
  if (!check_fields()) return;
  if (kind_ == Kind::response && status_ < 200) {
    if (status_ == 101 || ++interim_ > kMaxInterim) return refuse(400, "an informational response that was not asked for");
    return begin_message();
  }
  state_ = State::body;
  const bool no_body = kind_ == Kind::response ? status_ == 204 || status_ == 304 : !chunked_ && left_ == 0;
  if (no_body || (has_length_ && left_ == 0)) {
    state_ = State::done;
    continue_ = false;
  } else if (chunked_) {
    part_ = Part::chunk_size;
  } else if (has_length_) {
    part_ = Part::fixed_body;
    body_.reserve(std::min<size_t>(left_, 1 << 20));
  } else {
    part_ = Part::rest;
  }
}

void HttpParser::take_chunk_size(std::string_view line) {
  const size_t digits = std::min(line.find_first_of(" \t;"), line.size());
  const std::string_view extension = trim(line.substr(digits));
  const bool good = parse_size(line.substr(0, digits), 16, left_) && (digits == line.size() || extension.starts_with(';')) &&
                    is_field_text(extension);
  if (!good) return refuse(400, "a chunk's size is no hexadecimal number");
  if (left_ > limits_.body_bytes - body_.size()) return refuse(413, "the body is larger than the limit");
  part_ = left_ ? Part::chunk_data : Part::trailer;
}

std::string_view http_reason(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return status < 300 ? "OK" : "Error";
  }
}

void append_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;                 // an empty chunk would end the body
  char digits[16];
  size_t n = 0;
  for (size_t v = data.size(); v; v >>= 4) digits[n++] = "0123456789abcdef"[v & 15];
  while (n) out += digits[--n];
  out += "\r\n";
  out += data;
  out += "\r\n";
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  if (!is_token(name) || !is_field_text(value)) fail(Code::request, "header ", quoted(name), ": its name or value cannot be sent");
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

}  // namespace tealight
