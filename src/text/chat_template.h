// Chat templates: an interpreter for the Jinja that real templates use, as transformers renders it
// (trim_blocks, lstrip_blocks, loop controls, tojson without ASCII escapes, raise_exception, strftime_now, generation).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"

namespace tealight {

// A stretch of rendered text. `from_template` is false for text that came out of a variable (a user's words), so that a
// tokenizer looks for special tokens only where the template itself wrote them.
struct RenderedPart {
  std::string text;
  bool from_template;
};

struct ChatTemplateLimits {
  uint64_t max_steps = 20'000'000;        // evaluated nodes and loop iterations
  uint64_t max_output_bytes = 64 << 20;   // also bounds every intermediate string
  int max_depth = 200;
};

class ChatTemplate {
 public:
  // Errors: Code::template_ with line and column.
  static ChatTemplate parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  using Limits = ChatTemplateLimits;
  // Renders with the members of `variables` (an object) as the global names. `now` is "YYYY-MM-DD hh:mm:ss" for
  // strftime_now, empty for the system's clock. Errors: Code::template_ (raise_exception: exactly its message).
  std::string render(Json variables, std::string_view now = {}, const Limits& limits = Limits()) const;
  std::vector<RenderedPart> render_parts(Json variables, std::string_view now = {}, const Limits& limits = Limits()) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tealight
