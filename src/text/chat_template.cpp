#include "src/text/chat_template.h"

#include <algorithm>

#include "src/text/jinja_eval.h"

namespace tealight {

struct ChatTemplate::Impl {
  jinja::Template tree;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::parse(std::string_view source) {
  return ChatTemplate(std::unique_ptr<Impl>(new Impl{jinja::parse_template(source)}));
}

namespace {

// Whose turn a message is. These words name the turn, a user does not say them: they may be part of a special token
// that the template spells ('<|' + message.role + '|>'). Any other role counts as a user's text.
bool is_known_role(std::string_view s) {
  static constexpr std::string_view roles[] = {"system", "developer", "user", "assistant", "tool", "function", "model", "ipython", "observation"};
  return std::find(std::begin(roles), std::end(roles), s) != std::end(roles);
}

jinja::Value messages_value(jinja::Runtime& rt, Json messages) {
  std::vector<jinja::Value> out;
  out.reserve(messages.size());
  for (Json message : messages.elements()) {
    out.push_back(rt.from_json(message, true));
    if (Json role = message["role"]; role.is_string() && is_known_role(role.string("role")))
      out.back().dict().set(rt.text("role", true), rt.text(role.string("role"), false));
  }
  return jinja::Value(jinja::Type::list, new jinja::List(rt, std::move(out)), true);
}

jinja::Text render_text(const jinja::Template& tree, Json variables, std::string_view now, const ChatTemplate::Limits& limits) {
  jinja::Runtime rt(limits);
  rt.now = now;
  if (variables && !variables.is_object()) rt.error("the variables are ", kind_name(variables.kind()), ", expected an object");
  jinja::Value globals(jinja::Type::dict, new jinja::Dict(rt));
  // bos_token and the like are named by the model, not by a user: special tokens in them are meant.
  for (auto [key, value] : variables.members())
    globals.dict().set(rt.text(key, false), key == "messages" && value.is_array() ? messages_value(rt, value) : rt.from_json(value, !key.ends_with("_token")));
  return jinja::render(rt, tree, globals);
}

}  // namespace

std::string ChatTemplate::render(Json variables, std::string_view now, const Limits& limits) const {
  return render_text(impl_->tree, variables, now, limits).take();
}

std::vector<RenderedPart> ChatTemplate::render_parts(Json variables, std::string_view now, const Limits& limits) const {
  std::vector<RenderedPart> parts;
  render_text(impl_->tree, variables, now, limits).each_part([&](std::string_view text, bool user) {
    parts.push_back({std::string(text), !user});
  });
  return parts;
}

}  // namespace tealight
