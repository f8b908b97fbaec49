#include <doctest/doctest.h>

#include <cstring>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/io/gguf.h"
#include "tests/alloc_count.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

// The message of the refusal; "" when the file was accepted. A refusal may not take a megabyte.
std::string refusal(const auto& open) {
  uint64_t before = g_allocated_bytes;
  try {
    open();
  } catch (const Error& e) {
    CHECK(g_allocated_bytes - before < 1'000'000);
    return e.message.empty() ? "no message" : e.message;
  }
  return "";
}

}  // namespace

TEST_CASE("gguf: every hostile file of the container level is refused with its cause") {
  std::string folder = fixture("formats/gguf_hostile") + "/";
  JsonDoc expect = JsonDoc::parse(read_text_file(folder + "expect.json", 1 << 20), "expect.json");
  for (auto [name, v] : expect["files"].members()) {
    if (v["level"].string("level") != "file") continue;
    std::string message = refusal([&] { Gguf::open(folder + std::string(name)); });
    INFO(name, ": ", message);
    if (v["must_refuse"].is_null()) CHECK(message == "");
    else if (v["must_refuse"].boolean("must_refuse")) CHECK(message != "");
  }
}
