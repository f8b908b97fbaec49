#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/base/json.h"

using namespace tealight;

TEST_CASE("json: values, look-ups and errors") {
  JsonDoc d = JsonDoc::parse(R"({"a":[1,2.5,"x\u00e9"],"b":{"c":null,"d":true},"u":18446744073709551615})", "t");
  CHECK(d["a"][0].integer("a0") == 1);
  CHECK(d["a"][1].number("a1") == 2.5);
  CHECK(d["a"][2].string("a2") == "x\xc3\xa9");
  CHECK(d["b"]["c"].is_null());
  CHECK(d["b"]["d"].boolean("d"));
  CHECK(!d["nope"]["deeper"]);
  CHECK(d["u"].unsigned_integer("u") == 18446744073709551615ull);
  CHECK_THROWS_AS(d["u"].integer("u"), Error);
  CHECK_THROWS_AS(d["a"].string("a"), Error);
  CHECK_THROWS_AS(JsonDoc::parse("{", "t"), Error);
  CHECK_THROWS_AS(JsonDoc::parse("{} x", "t"), Error);
  CHECK_THROWS_AS(JsonDoc::parse(std::string(100000, '['), "t"), Error);
  CHECK_THROWS_AS(JsonDoc::parse("[Infinity]", "t"), Error);
  CHECK(JsonDoc::parse("[-Infinity,\"NaN\"]", "t", true).root()[1].string("s") == "NaN");
  std::string keys;
  for (auto [k, v] : d.root().members()) keys += k;
  CHECK(keys == "abu");
}

TEST_CASE("json: the writer puts commas and escapes") {
  std::string s;
  JsonWriter w(s);
  w.begin_object().field("a", 1).key("b").begin_array().value("q\"\n\x01").value(0.1).value(true).end_array().field("c", "\xff").end_object();
  CHECK(s == "{\"a\":1,\"b\":[\"q\\\"\\n\\u0001\",0.1,true],\"c\":\"\xef\xbf\xbd\"}");
  std::string copy;
  JsonWriter(copy).value(JsonDoc::parse(s, "s").root());
  CHECK(copy == s);
}

TEST_CASE("hash: pieces give the hash of the whole") {
  Hasher h;
  h.update("ab", 2);
  h.update("c", 1);
  CHECK(h.digest() == hash64("abc"));
  CHECK(hex64(hash64("abc")) == "78af5f94892f3950");
}
