#include <doctest/doctest.h>

#include <dirent.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/mapping.h"
#include "src/text/chat_template.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

constexpr std::string_view kNow = "2031-03-14 09:26:53";

std::string render(std::string_view source, std::string_view variables = "{}", const ChatTemplate::Limits& limits = {}) {
  const JsonDoc doc = JsonDoc::parse(variables, "variables", true);
  return ChatTemplate::parse(source).render(doc.root(), kNow, limits);
}

// The message of the error, or "rendered: ..." when there is none.
std::string error_of(std::string_view source, std::string_view variables = "{}", const ChatTemplate::Limits& limits = {}) {
  try {
    return "rendered: " + render(source, variables, limits);
  } catch (const Error& e) {
    CHECK(e.code == Code::template_);
    return e.message;
  }
}

// The parts in one line: user's text in brackets.
std::string parts(std::string_view source, std::string_view variables) {
  const JsonDoc doc = JsonDoc::parse(variables, "variables");
  std::string out;
  for (const RenderedPart& p : ChatTemplate::parse(source).render_parts(doc.root(), kNow)) out += p.from_template ? p.text : "[" + p.text + "]";
  return out;
}

// The same conversation as the fixtures' generator rendered it.
std::string variables_of(Json conversation) {
  std::string text;
  JsonWriter w(text);
  w.begin_object();
  for (auto [key, value] : conversation.members()) w.key(key).value(value);
  if (!conversation["tools"]) w.key("tools").null();
  w.key("documents").null().field("bos_token", "<s>").field("eos_token", "</s>").end_object();
  return text;
}

}  // namespace

TEST_CASE("real templates render byte for byte" * doctest::skip(!have_fixture("templates/conversations.json"))) {
  const std::string conversations_path = fixture("templates/conversations.json"), folder = conversations_path.substr(0, conversations_path.rfind('/'));
  const JsonDoc conversations = JsonDoc::parse(read_text_file(folder + "/conversations.json", 1 << 20), "conversations");
  std::vector<std::string> names;
  DIR* dir = opendir(folder.c_str());
  REQUIRE(dir);
  while (const dirent* e = readdir(dir))
    if (std::string_view(e->d_name).ends_with(".jinja")) names.emplace_back(e->d_name);
  closedir(dir);
  std::sort(names.begin(), names.end());
  CHECK(names.size() > 50);
  for (const std::string& name : names) {
    const std::string base = folder + "/" + name.substr(0, name.size() - 6);
    const JsonDoc expected = JsonDoc::parse(read_text_file(base + ".expected.json", 1 << 20), name);
    const std::string source = read_text_file(folder + "/" + name, 1 << 20);
    for (auto [conversation, value] : conversations.root().members()) {
      CAPTURE(name);
      CAPTURE(conversation);
      const Json want = expected["render"][conversation];
      const std::string variables = variables_of(value);
      if (Json text = want["text"]) {
        std::string got;
        try {
          got = render(source, variables);
        } catch (const Error& e) {
          got = "error: " + e.message;
        }
        CHECK(got == text.string("text"));
      } else {
        const std::string_view error = want["error"].string("error");
        const std::string got = error_of(source, variables);
        CHECK(!got.starts_with("rendered: "));
        if (error.starts_with("TemplateError: ")) CHECK(got == error.substr(15));
      }
    }
  }
}

TEST_CASE("templates keep what they wrote apart from what variables say") {
  const std::string_view chat = R"({"messages": [{"role": "guest", "content": " <|im_end|> "}], "bos_token": "<s>", "n": 7, "flag": true})";
  CHECK(parts("{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}{% endfor %}", chat) ==
        "<s><|im_start|>[guest]\n[ <|im_end|> ]<|im_end|>");
  CHECK(parts("{{ ('a' ~ messages[0].content ~ 'b') | trim | replace('_', '-') | upper }}", chat) == "A[ <|IM]-[END|> ]B");
  CHECK(parts("{{ messages[0].content.strip()[2:4] ~ ('%s|%d' % (messages[0].role, n)) }}", chat) == "[imguest]|[7]");
  CHECK(parts("{{ '{}<{}>'.format(messages[0].role, 'x') }}{{ ['a', messages[0].role] | join(',') }}", chat) == "[guest]<x>a,[guest]");
  CHECK(parts("{{ messages | tojson }}", R"({"messages": ["<s>", 1]})") == "[[\"<s>\", 1]]");
  CHECK(parts("{{ {'k': messages[0], 'n': n} | tojson }}", R"({"messages": ["<s>"], "n": 5})") == "{\"k\": [\"<s>\"], \"n\": [5]}");
  CHECK(parts("{% set x %}<{{ n }}>{% endset %}{% macro m(a) %}({{ a }}){% endmacro %}{{ m(x) }}{{ n + 1 }}{{ flag }}", chat) == "(<[7]>)[8True]");
  CHECK(parts("{{ messages[0].content.split('|')[1] }}{{ (messages[0].role ~ '!') * 2 }}{{ messages[0].role | title }}", chat) ==
        "[im_endguest]![guest]![Guest]");
  CHECK(parts("{{ 'literal' if messages[0].role == 'guest' else messages[0].role }}", chat) == "literal");
  CHECK(parts("{{ [messages[0].role, 'x'] }}", chat) == "[['guest'], 'x']");
  // The word that says whose turn it is names the turn; it may stand inside of a special token that the template spells.
  CHECK(parts("{{ '<|' + messages[0].role + '|>' + messages[0].content }}", R"({"messages": [{"role": "user", "content": "user"}]})") == "<|user|>[user]");
  CHECK(parts("{{ '<|' + messages[0].role + '|>' }}{{ x.role }}", R"({"messages": [{"role": "im_end"}], "x": {"role": "user"}})") == "<|[im_end]|>[user]");
}

TEST_CASE("templates are bounded") {
  CHECK(error_of("{% for i in range(10**9) %}{% endfor %}").find("Range too big") != std::string::npos);
  for (std::string_view source : {
           "{{ 'x' * 10**9 }}", "{{ [1] * 10**9 }}", "{{ ('x' * 10**6) * 10**6 }}", "{{ ''.ljust(10**12) }}", "{{ '%1000000000d' % 1 }}",
           "{{ '{:>2000000000}'.format(1) }}", "{{ 'a'.replace('', 'x' * 60000000) }}", "{{ [1]|tojson(indent=10**12) }}",
           "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{% set ns = namespace(s=['x']) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
           "{% set ns = namespace(s=[]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro m() %}{{ m() ~ m() }}{% endmacro %}{{ m() }}", "{{ 10**100 }}", "{{ 2**(10**30) }}", "{{ 'a' * 5 % 3 }}",
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{{ [1]|batch(10**12, 0)|list }}", "{{ [1]|slice(10**12, 0)|list }}",
           "{{ 1.5|round(10**9) }}{{ '%.100000f' % 1.5 }}", "{{ 'a'|indent(10**12) }}", "{{ 'a'|center(10**12) }}"}) {
    CAPTURE(source);
    CHECK(!error_of(source).starts_with("rendered: "));
  }
  std::string deep;
  for (int i = 0; i < 100'000; i++) deep += '(';
  CHECK(!error_of("{{ " + deep).starts_with("rendered: "));
  std::string chain = "{{ a";
  for (int i = 0; i < 100'000; i++) chain += ".a";
  CHECK(!error_of(chain + " }}").starts_with("rendered: "));
  std::string blocks;
  for (int i = 0; i < 100'000; i++) blocks += "{% if x %}";
  CHECK(!error_of(blocks).starts_with("rendered: "));
  std::string sum = "{{ 1";
  for (int i = 0; i < 10'000; i++) sum += " + 1";
  CHECK(render(sum + " }}") == "10001");
  // A list nested a million deep is made and freed without recursion.
  CHECK(render("{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}ok") == "ok");
  CHECK(render("{% set ns = namespace() %}{% set ns.self = ns %}ok") == "ok");
  ChatTemplate::Limits small;
  small.max_output_bytes = 100;
  CHECK(error_of("{% for i in range(60) %}ab{% endfor %}", "{}", small).find("more than 100 bytes") != std::string::npos);
  small = {};
  small.max_steps = 1000;
  CHECK(error_of("{% for i in range(60000) %}ab{% endfor %}", "{}", small).find("1000 steps") != std::string::npos);
}

TEST_CASE("template errors say where") {
  CHECK(error_of("a\n{% if %}") == "line 2, column 7: expected an expression, got end of statement block");
  CHECK(error_of("{{ x") == "line 1, column 1: the tag is not closed");
  CHECK(error_of("{% foo %}") == "line 1, column 4: unknown tag \"foo\"");
  CHECK(error_of("\n\n{{ x.y.z }}") == "line 3: 'x' is undefined");
  CHECK(error_of("{{ raise_exception('Exactly this!\n') }}") == "Exactly this!\n");
  CHECK(error_of("{{ [].append(1) }}") == "line 1: access to attribute 'append' of 'list' object is unsafe.");
  CHECK(error_of("\xff") == "the template is not valid UTF-8");
}

TEST_CASE("every construct renders as Jinja does") {
  const std::string text = read_text_file("tests/data/templates/vectors.json", 4 << 20);
  const JsonDoc vectors = JsonDoc::parse(text, "vectors.json");
  size_t n = 0;
  for (Json c : vectors["cases"].elements()) {
    const std::string_view source = c["template"].string("template");
    CAPTURE(source);
    std::string got, error;
    try {
      got = ChatTemplate::parse(source).render(vectors["variables"], kNow);
    } catch (const Error& e) {
      error = e.message;
      CHECK(e.code == Code::template_);
    }
    if (Json want = c["text"]) {
      CHECK(error == "");
      CHECK(got == want.string("text"));
    } else {
      CHECK(error != "");
      if (Json message = c["raises"]) CHECK(error == message.string("raises"));
    }
    n++;
  }
  CHECK(n > 1000);
}
