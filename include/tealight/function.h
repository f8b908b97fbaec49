// A person's own function around a model: pre-processing, model call, post-processing, on every host.
//
//   #include <tealight/function.h>
//
//   int main(int argc, char** argv) {
//     return tealight::function(argc, argv, [](tealight::Request& request, tealight::Model& model) -> tealight::Reply {
//       return model.complete("Translate to French: " + request.text("text"), {.max_tokens = 100});
//     });
//   }
//
// The same program answers lines on standard input, and, by what its environment says, events of AWS Lambda or HTTP requests.
// Link with libtealight_api.a.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tealight {

enum class Element : uint8_t { f32, f16, bf16, i32, i64, i8, u8 };
size_t element_bytes(Element e);

// Values that lie somewhere else, rows one after the other: in memory that the client shares, or in the request.
struct TensorView {
  Element element = Element::f32;
  std::vector<int64_t> shape;
  std::byte* data = nullptr;           // aligned for the element; null where there is no such tensor
  size_t bytes = 0;
  explicit operator bool() const { return data; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data), bytes / sizeof(T)};
  }
};

// One call. Everything in it is valid until the function returns.
class Request {
 public:
  virtual ~Request() = default;
  virtual std::string_view body() const = 0;
  virtual std::string_view content_type() const = 0, method() const = 0, path() const = 0, query() const = 0;
  virtual std::string_view id() const = 0;         // the host's, for logs
  // Fields of a JSON body. A field that is missing fails the call (status 400) unless there is a fallback; one of another kind does
  // so always.
  virtual std::string text(std::string_view field) = 0;
  virtual std::string text(std::string_view field, std::string_view fallback) = 0;
  virtual double number(std::string_view field, std::optional<double> fallback = {}) = 0;
  virtual bool flag(std::string_view field, bool fallback = false) = 0;
  // A tensor of this name: where the client shares memory (docs/shared-memory.md) the values lie there and may be changed by the
  // client meanwhile; else a field that holds an array of numbers, as f32. Fails the call when there is none.
  virtual TensorView tensor(std::string_view name) = 0;
  // A place for a result in the memory that the client shares; nothing where it shares none. Fails the call when the room does not
  // suffice. The answer's "shm" says what was written.
  virtual TensorView output(Element element, std::vector<int64_t> shape) = 0;
  // Sends a part of the body at once where the host and the client can take it. False: nobody reads any more.
  virtual bool write(std::string_view piece) = 0;
  virtual bool gone() = 0;                         // the caller has left
  virtual double seconds_left() const = 0;         // until the host's deadline; a large number without one
};

struct GenerateOptions {
  int64_t max_tokens = 0;                          // 0: until the model ends
  double temperature = 0;                          // 0: always the most likely token
  double top_p = 1;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::function<bool(std::string_view piece)> write;   // takes the text piece by piece; false ends it
};

// The model of this process. One call at a time.
class Model {
 public:
  virtual ~Model() = default;
  virtual std::string complete(std::string_view prompt, const GenerateOptions& options = {}) = 0;
  // With the model's chat template. An empty system text is left out.
  virtual std::string chat(std::string_view system, std::string_view user, const GenerateOptions& options = {}) = 0;
  // A request with the fields of OpenAI's API, and the answer as it has it.
  virtual std::string answer(std::string_view request_json) = 0;
  virtual std::vector<int32_t> tokens(std::string_view text) = 0;
  virtual std::vector<float> logits(std::span<const int32_t> tokens) = 0;   // [vocabulary] after the last token
  virtual std::vector<float> embed(std::string_view text) = 0;              // of length one
  virtual std::string_view name() const = 0;
};

struct Reply {
  Reply() = default;
  Reply(std::string text) : body(std::move(text)) {}            // plain text
  static Reply json(std::string body) { return {std::move(body), "application/json", 200}; }
  static Reply error(int status, std::string message) { return {std::move(message), "text/plain; charset=utf-8", status}; }
  Reply(std::string b, std::string type, int code) : status(code), content_type(std::move(type)), body(std::move(b)) {}
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// A text as a JSON string with its quotes.
std::string json_string(std::string_view text);

using Function = std::function<Reply(Request& request, Model& model)>;

// main() of a function: program [MODEL] [options]; --help says more. Returns the exit code. What the function throws fails its call
// and not the process.
int function(int argc, char** argv, const Function& f);

}  // namespace tealight
