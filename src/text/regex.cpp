// The matcher: depth-first with an explicit stack and a budget of steps.
#include "src/text/regex.h"

#include "src/base/error.h"
#include "src/text/regex_program.h"

namespace tealight {
namespace {

constexpr size_t kNone = SIZE_MAX;

class Matcher {
 public:
  Matcher(const Regex::Program& p, std::string_view text)
      : p_(p), s_(text), marks_(p.n_marks), budget_(1'000'000 + 500 * uint64_t(text.size())),
        most_choices_(10'000 + 32 * text.size()) {}

  // End of the match that begins at `pos`, or kNone.
  size_t match(size_t pos) {
    stack_.clear();
    return run(0, pos);
  }
  // Where class `cls` ends that begins at pos.
  size_t skip(const CharClass& cls, size_t pos) const {
    while (pos < s_.size()) {
      const Utf8Char u = utf8_at(s_, pos);
      if (!cls.has(u.c)) break;
      pos += u.bytes;
    }
    return pos;
  }

 private:
  // What to try when the current path fails.
  struct Choice {
    enum Kind : uint32_t { plain, give_back, take_more, restore } kind;
    uint32_t pc;      // where to go on; restore: the register
    size_t pos;       // where to go on from; restore: its old value
    size_t limit;     // give_back: the least position; take_more: how many more characters may be taken
  };

  void step(uint64_t n = 1) {
    if (budget_ < n || stack_.size() > most_choices_)
      fail(Code::tokenizer, "pattern ", quoted(p_.pattern), " backtracks too much on a text of ", s_.size(), " bytes");
    budget_ -= n;
  }

  bool holds(Op op, size_t pos) const {
    switch (op) {
      case Op::line_begin: return pos == 0 || s_[pos - 1] == '\n';
      case Op::line_end: return pos == s_.size() || s_[pos] == '\n';
      case Op::text_begin: return pos == 0;
      case Op::text_end: return pos == s_.size();
      case Op::text_end_newline: return pos == s_.size() || (pos + 1 == s_.size() && s_[pos] == '\n');
      default: {
        const bool before = pos > 0 && is_word(utf8_at(s_, utf8_before(s_, pos)).c);
        const bool after = pos < s_.size() && is_word(utf8_at(s_, pos).c);
        return (before != after) == (op == Op::word_edge);
      }
    }
  }

  // Recurses only into look-aheads and atomic groups, as deep as the pattern nests them.
  size_t run(uint32_t pc, size_t pos) {
    const size_t base = stack_.size();
    while (true) {
      step();
      const Inst& i = p_.code[pc];
      bool ok = true;
      switch (i.op) {
        case Op::one: {
          ok = pos < s_.size();
          if (!ok) break;
          const Utf8Char u = utf8_at(s_, pos);
          ok = p_.classes[i.a].has(u.c);
          pos += u.bytes;
          pc++;
          break;
        }
        case Op::loop:
        case Op::loop_keep: ok = loop(i, pc, pos); break;
        case Op::loop_lazy: ok = loop_lazy(i, pc, pos); break;
        case Op::split:
          stack_.push_back({Choice::plain, i.b, pos, 0});
          pc = i.a;
          break;
        case Op::jump: pc = i.a; break;
        case Op::mark:
          stack_.push_back({Choice::restore, i.a, marks_[i.a], 0});
          marks_[i.a] = pos;
          pc++;
          break;
        case Op::progress:
          ok = pos != marks_[i.a];
          pc++;
          break;
        case Op::look:
          ok = (run(i.a, pos) != kNone) != bool(i.low);
          pc = i.b;
          break;
        case Op::atomic:
          pos = run(i.a, pos);
          ok = pos != kNone;
          pc = i.b;
          break;
        case Op::behind:
          ok = (pos > 0 && p_.classes[i.a].has(utf8_at(s_, utf8_before(s_, pos)).c)) != bool(i.low);
          pc++;
          break;
        case Op::match: unwind(base); return pos;
        default:
          ok = holds(i.op, pos);
          pc++;
      }
      if (!ok && !backtrack(base, pc, pos)) return kNone;
    }
  }

  bool loop(const Inst& i, uint32_t& pc, size_t& pos) {
    const CharClass& cls = p_.classes[i.a];
    size_t least = pos, end = pos;
    uint32_t n = 0;
    for (; n < i.high && end < s_.size(); n++) {
      const Utf8Char u = utf8_at(s_, end);
      if (!cls.has(u.c)) break;
      end += u.bytes;
      if (n + 1 == i.low) least = end;
    }
    step(n);
    if (n < i.low) return false;
    pos = end;
    pc++;
    if (end > least && i.op == Op::loop) stack_.push_back({Choice::give_back, pc, end, least});
    return true;
  }
  bool loop_lazy(const Inst& i, uint32_t& pc, size_t& pos) {
    const CharClass& cls = p_.classes[i.a];
    uint32_t n = 0;
    for (; n < i.low && pos < s_.size(); n++) {
      const Utf8Char u = utf8_at(s_, pos);
      if (!cls.has(u.c)) break;
      pos += u.bytes;
    }
    step(n);
    if (n < i.low) return false;
    if (i.high > i.low) stack_.push_back({Choice::take_more, pc, pos, i.high == kUnbounded ? SIZE_MAX : i.high - i.low});
    pc++;
    return true;
  }

  bool backtrack(size_t base, uint32_t& pc, size_t& pos) {
    while (stack_.size() > base) {
      step();
      Choice& c = stack_.back();
      switch (c.kind) {
        case Choice::restore:
          marks_[c.pc] = c.pos;
          stack_.pop_back();
          continue;
        case Choice::plain:
          pc = c.pc;
          pos = c.pos;
          stack_.pop_back();
          return true;
        case Choice::give_back:
          pos = c.pos = utf8_before(s_, c.pos);
          pc = c.pc;
          if (pos <= c.limit) stack_.pop_back();
          return true;
        case Choice::take_more: {
          const Inst& i = p_.code[c.pc];
          const Utf8Char u = c.pos < s_.size() ? utf8_at(s_, c.pos) : Utf8Char{};
          if (!u.ok || c.limit == 0 || !p_.classes[i.a].has(u.c)) {
            stack_.pop_back();
            continue;
          }
          pos = c.pos += u.bytes;
          c.limit--;
          pc = c.pc + 1;
          return true;
        }
      }
    }
    return false;
  }
  // Drops the choices of a run that has succeeded; registers get back what they held before it.
  void unwind(size_t base) {
    while (stack_.size() > base) {
      if (stack_.back().kind == Choice::restore) marks_[stack_.back().pc] = stack_.back().pos;
      stack_.pop_back();
    }
  }

  const Regex::Program& p_;
  std::string_view s_;
  std::vector<Choice> stack_;
  std::vector<size_t> marks_;
  uint64_t budget_;
  size_t most_choices_;   // on the stack: the memory of a match is bounded too
};

}  // namespace

void Regex::find_all(std::string_view text, std::vector<Match>& out) const {
  out.clear();
  Matcher m(*program_, text);
  size_t last_end = kNone;
  for (size_t pos = 0; pos <= text.size();) {
    const size_t end = m.match(pos);
    if (end == kNone) {
      // x+y failed for every part of a run of x: it fails from every later place in the run too.
      size_t next = pos;
      if (program_->leading_loop >= 0) next = m.skip(program_->classes[size_t(program_->leading_loop)], pos);
      if (next == pos) next = pos < text.size() ? pos + utf8_at(text, pos).bytes : pos + 1;
      pos = next;
      continue;
    }
    // An empty match right after the last one does not count.
    if (end > pos || last_end != pos) out.push_back({pos, end});
    last_end = end;
    pos = end > pos ? end : pos < text.size() ? pos + utf8_at(text, pos).bytes : pos + 1;
  }
}

Regex::Regex(std::unique_ptr<const Program> p) : program_(std::move(p)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

}  // namespace tealight
