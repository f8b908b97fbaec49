#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/base/unicode.h"
#include "src/text/regex.h"

using namespace tealight;

namespace {
// The matches joined by |.
std::string all(std::string_view pattern, std::string_view text) {
  std::vector<Regex::Match> m;
  Regex::compile(pattern).find_all(text, m);
  std::string s;
  for (size_t i = 0; i < m.size(); i++) s += cat(i ? "|" : "", text.substr(m[i].begin, m[i].end - m[i].begin));
  return s;
}
constexpr std::string_view kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
}  // namespace

TEST_CASE("regex: the patterns that tokenizers use") {
  CHECK(all(kLlama3, "3333+777") == "333|3|+|777");
  CHECK(all(kLlama3, "don't  \t\tgo") == "don|'t|  \t|\tgo");
  CHECK(all(kLlama3, "We'LL see\r\n\r\n  x") == "We|'LL| see|\r\n\r\n| | x");
  CHECK(all("\\p{N}", "a12") == "1|2");
  CHECK(all("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "it's  a test42!") == "it|'s| | a| test|42|!");
  CHECK(all("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+", "CamelCase XMLHttp") == "Camel|Case| XMLHttp");
}

TEST_CASE("regex: each construct") {
  CHECK(all("a|ab", "ab") == "a");
  CHECK(all("ab|a", "ab") == "ab");
  CHECK(all("a{2,3}", "aaaaa") == "aaa|aa");
  CHECK(all("a{2}?", "aaaa") == "aa|aa");
  CHECK(all("a+?", "aaa") == "a|a|a");
  CHECK(all("a++a", "aaa") == "");
  CHECK(all("(?>a+)b", "aab") == "aab");
  CHECK(all("(?:ab){1,2}c", "ababababc") == "ababc");
  CHECK(all("(?:ab)*?c", "ababc") == "ababc");
  CHECK(all("x(?=y)", "xyxz") == "x");
  CHECK(all("x(?!y)", "xyxz") == "x");
  CHECK(all("(?<=a)x", "axbx") == "x");
  CHECK(all("(?<!a)x", "axbx") == "x");
  CHECK(all("[^a]", "ab\xc3\xa4") == "b|\xc3\xa4");
  CHECK(all("[a-c&&[^b]]+", "abcab") == "a|ca");
  CHECK(all("[\\]\\-a]+", "]-ab") == "]-a");
  CHECK(all("[]a]+", "]ab") == "]a");
  CHECK(all("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567") == "1|234|567");
  CHECK(all("(?i:stra)", "STRA\xc5\xbftra") == "STRA|\xc5\xbftra");
  CHECK(all("\\s+$", "a  \nb  ") == "  |  ");
  CHECK(all("\\p{Han}+", "\xe6\x97\xa5\xe6\x9c\xac\xe3\x81\xae") == "\xe6\x97\xa5\xe6\x9c\xac");
  CHECK(all("a{,2}b", "aaab") == "aab");
  CHECK(all("a{x}", "a{x}") == "a{x}");
  CHECK(all("(a*)*b", "aab") == "aab");
  CHECK(all("(?:)", "ab") == "||");
  CHECK(all("\\x41\\u0042", "AB") == "AB");
  CHECK(all("(?i)[k-s]", "aK\u212a\u017fz") == "K|\u212a|\u017f");
  CHECK(all("(?i)[\u03b1-\u03c9]", "a\u03a3\u03c2\u2126") == "\u03a3|\u03c2|\u2126");
}

TEST_CASE("regex: what is not supported is refused") {
  for (const char* p : {"(", ")", "[a", "a**b(", "*", "\\p{Nope}", "(?P<x>a)", "\\1", "a{2,1}", "(?<=ab)c", "[[:alpha:]]", "\\", "[z-a]", "\\x{110000}", "(?#c)"})
    CHECK_THROWS_AS(Regex::compile(p), Error);
  CHECK_THROWS_AS(Regex::compile(std::string(200, '(') + std::string(200, ')')), Error);
  CHECK_THROWS_AS(Regex::compile("(?:(?:(?:a{1,9}b){999}){999}){999}"), Error);
  CHECK_THROWS_AS(Regex::compile("(){99999}{99999}{99999}"), Error);
  std::string repeated = "a";
  for (int i = 0; i < 30'000; i++) repeated += "{1}";
  CHECK_THROWS_AS(Regex::compile(repeated), Error);
}

TEST_CASE("regex: long texts take linear time and no deep stack; endless backtracking is an error") {
  std::vector<Regex::Match> m;
  const std::string spaces(1 << 20, ' ');
  Regex::compile(kLlama3).find_all(spaces + "x", m);
  CHECK(m.size() == 2);
  Regex::compile("\\s+$").find_all(spaces + "x", m);
  CHECK(m.empty());
  Regex::compile("(?:ab|cd)*").find_all(std::string(1 << 20, 'a') + "b", m);
  Regex::compile("(?:a|b)*").find_all(std::string(1 << 20, 'a'), m);
  CHECK(m.size() == 1);
  CHECK_THROWS_AS(Regex::compile("(a*)*b").find_all(std::string(64, 'a'), m), Error);
}

TEST_CASE("unicode: UTF-8, normal forms, case") {
  CHECK(utf8_valid("a\xf0\x9f\xa6\x99"));
  for (const char* bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xbd", "\x80"}) CHECK(!utf8_valid(bad));
  std::string s;
  utf8_append_lossy(s, "\xf0\x9f\xa6.\xff");
  CHECK(s == "\xef\xbf\xbd.\xef\xbf\xbd");
  s.clear();
  utf8_append_lossy(s, "\xf0\x9f\xa6", true);
  CHECK(s == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(normalize("e\xcc\x81", NormalForm::nfc) == "\xc3\xa9");
  CHECK(normalize("\xc3\xa9", NormalForm::nfd) == "e\xcc\x81");
  CHECK(normalize("\xef\xac\x81", NormalForm::nfkc) == "fi");
  CHECK(fold_case(0x17f) == 's');
  std::string above, below;                  // a long run of marks: sorted, and not in quadratic time
  for (int i = 0; i < 100'000; i++) above += "\u0301", below += "\u0316";
  CHECK(normalize("e" + above + below, NormalForm::nfd) == "e" + below + above);
  CHECK(is_punctuation('$'));
  CHECK(category(0x4e00) == Category::lo);
}
