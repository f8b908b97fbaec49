#include "src/api/function_handler.h"

#include <time.h>

#include <optional>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/host/shared_memory.h"
#include "src/host/stdio.h"
#include "src/task/generate.h"

namespace tealight {
namespace {

struct ElementName {
  Element element;
  Dtype dtype;
};
constexpr ElementName kElements[] = {{Element::f32, Dtype::f32}, {Element::f16, Dtype::f16}, {Element::bf16, Dtype::bf16},
                                     {Element::i32, Dtype::i32}, {Element::i64, Dtype::i64}, {Element::i8, Dtype::i8},
                                     {Element::u8, Dtype::u8}};

Dtype dtype_of(Element e) {
  for (const ElementName& n : kElements)
    if (n.element == e) return n.dtype;
  fail(Code::usage, "an element type that does not exist");
}

Element element_of(Dtype d) {
  for (const ElementName& n : kElements)
    if (n.dtype == d) return n.element;
  fail(Code::request, "a tensor of this type cannot be used");
}

class FunctionRequest final : public Request {
 public:
  explicit FunctionRequest(const Call& call) : call_(call) {
    // A body that is no JSON is the function's own matter until it asks for a field.
    const size_t first = call.body.find_first_not_of(" \t\r\n");
    if (first == call.body.npos || call.body[first] != '{') return;
    doc_ = JsonDoc::parse(call.body, "request");
    if (Json shm = doc_["shm"]) {
      if (!call.local) fail(Code::request, "shm: memory is shared over pipes and UNIX sockets alone");
      memory_.emplace(shm, call.files);
    }
  }
  std::string_view body() const override { return call_.body; }
  std::string_view content_type() const override { return call_.content_type; }
  std::string_view method() const override { return call_.method; }
  std::string_view path() const override { return call_.path; }
  std::string_view query() const override { return call_.query; }
  std::string_view id() const override { return call_.request_id; }

  std::string text(std::string_view field) override { return std::string(need(field).string(field)); }
  std::string text(std::string_view field, std::string_view fallback) override {
    Json v = doc_[field];
    return std::string(v ? v.string(field) : fallback);
  }
  double number(std::string_view field, std::optional<double> fallback) override {
    Json v = doc_[field];
    return v || !fallback ? need(field).number(field) : *fallback;
  }
  bool flag(std::string_view field, bool fallback) override {
    Json v = doc_[field];
    return v ? v.boolean(field) : fallback;
  }

  TensorView tensor(std::string_view name) override {
    if (memory_ && memory_->has_tensor(name)) {
      const SharedPart p = memory_->tensor(name);
      return {element_of(p.dtype), p.shape, p.bytes.data(), p.bytes.size()};
    }
    Json list = need(name);
    if (!list.is_array()) fail(Code::request, name, ": expected an array of numbers, got ", kind_name(list.kind()));
    auto values = std::make_unique<float[]>(list.size() + 1);   // + 1: an empty tensor has a place, too
    size_t n = 0;
    for (Json v : list.elements()) values[n++] = float(v.number(name));
    tensors_.push_back(std::move(values));
    return {Element::f32, {int64_t(n)}, reinterpret_cast<std::byte*>(tensors_.back().get()), n * sizeof(float)};
  }
  TensorView output(Element element, std::vector<int64_t> shape) override {
    if (!memory_ || !memory_->has("output")) return {};
    size_t bytes = element_bytes(element);
    for (int64_t d : shape)
      if (d < 0 || __builtin_mul_overflow(bytes, size_t(d), &bytes)) fail(Code::usage, "output: a shape that no memory holds");
    const std::span<std::byte> to = memory_->output(bytes, dtype_of(element), shape);
    return {element, std::move(shape), to.data(), to.size()};
  }
  bool write(std::string_view piece) override { return call_.write && call_.write(piece); }
  bool gone() override { return call_.gone && call_.gone(); }
  double seconds_left() const override {
    if (!call_.deadline_us) return 1e9;
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return double(call_.deadline_us - (int64_t(t.tv_sec) * 1'000'000 + t.tv_nsec / 1000)) / 1e6;
  }
  // What output() handed out, as JSON; empty where it was not called.
  std::string written() const { return memory_ ? memory_->output_json() : ""; }

 private:
  Json need(std::string_view field) const {
    Json v = doc_[field];
    if (!v) fail(Code::request, quoted(field), ": missing from the request, which must be a JSON object");
    return v;
  }
  const Call& call_;
  JsonDoc doc_;
  std::optional<SharedMemory> memory_;
  std::vector<std::unique_ptr<float[]>> tensors_;
};

class FunctionModel final : public Model {
 public:
  explicit FunctionModel(std::unique_ptr<Lm> lm) : lm_(std::move(lm)), generator_(*lm_) {}
  // What ends the answers of the call under way: its caller leaves, or its time is over.
  void begin(const Call& call) { control_ = {call.gone, call.deadline_us}; }
  std::string complete(std::string_view prompt, const GenerateOptions& options) override {
    GenerateRequest q = request(options);
    q.prompt = prompt;
    return generator_.generate(q, options.write, control_).text;
  }
  std::string chat(std::string_view system, std::string_view user, const GenerateOptions& options) override {
    GenerateRequest q = request(options);
    q.chat = true;
    q.messages = cat("[", system.empty() ? "" : message_json("system", system) + ",", message_json("user", user), "]");
    return generator_.generate(q, options.write, control_).text;
  }
  std::string answer(std::string_view request_json) override {
    const JsonDoc doc = JsonDoc::parse(request_json, "request");
    const JsonDoc whole = with_defaults(lm_->default_fields(), doc.root());
    const GenerateRequest q = parse_request(whole.root());
    return answer_json(q, generator_.generate(q, {}, control_), *lm_);
  }
  std::vector<int32_t> tokens(std::string_view text) override { return lm_->tokenizer().encode(text, {}); }
  std::vector<float> logits(std::span<const int32_t> ids) override {
    if (ids.empty()) fail(Code::request, "logits: there are no tokens");
    const std::unique_ptr<Sequence> sequence = lm_->start(ids.size());
    const std::span<const float> values = sequence->eval(ids);
    return {values.begin(), values.end()};
  }
  std::vector<float> embed(std::string_view text) override { return lm_->embed(lm_->tokenizer().encode(text, {})); }
  std::string_view name() const override { return lm_->name(); }

 private:
  static GenerateRequest request(const GenerateOptions& o) {
    GenerateRequest q;
    q.max_tokens = o.max_tokens;
    q.sampling.temperature = o.temperature;
    q.sampling.top_p = o.top_p;
    q.seed = o.seed;
    q.stop = o.stop;
    return q;
  }
  std::unique_ptr<Lm> lm_;
  Generator generator_;
  GenerateControl control_;
};

class FunctionHandler final : public Handler {
 public:
  FunctionHandler(std::unique_ptr<Lm> lm, const Function& f) : model_(std::move(lm)), function_(f) {}
  Answer handle(const Call& call) override {
    FunctionRequest request(call);
    model_.begin(call);
    Reply reply;
    try {
      reply = function_(request, model_);
    } catch (const Error& e) {
      fail(Error(e.code == Code::format ? Code::request : e.code, e.message));   // format: a field of the wrong kind
    }
    Answer answer;
    answer.status = reply.status;
    answer.content_type = std::move(reply.content_type);
    answer.body = std::move(reply.body);
    if (const std::string written = request.written(); !written.empty()) add_written(answer, written);
    return answer;
  }

 private:
  // {"shm":...} joins the members of a JSON object; another body becomes its member "body".
  static void add_written(Answer& answer, const std::string& written) {
    const size_t end = answer.body.find_last_not_of(" \t\r\n");
    if (answer.content_type.starts_with("application/json") && end != answer.body.npos && answer.body[end] == '}') {
      const size_t last = answer.body.find_last_not_of(" \t\r\n", end - 1);
      const bool empty = end == 0 || last == answer.body.npos || answer.body[last] == '{';
      answer.body.replace(end, answer.body.npos, cat(empty ? "" : ",", "\"shm\":", written, "}"));
      return;
    }
    answer.body = cat("{\"body\":", json_string(answer.body), ",\"shm\":", written, "}");
    answer.content_type = "application/json";
  }
  FunctionModel model_;
  Function function_;
};

}  // namespace

size_t element_bytes(Element e) { return size_t(info(dtype_of(e)).bytes); }

std::string json_string(std::string_view text) {
  std::string out;
  json_quote(out, text);
  return out;
}

std::unique_ptr<Handler> function_handler(std::unique_ptr<Lm> lm, const Function& f) {
  return std::make_unique<FunctionHandler>(std::move(lm), f);
}

}  // namespace tealight
