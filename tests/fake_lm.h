// A language model without a network, for tests of what lies above: it "answers" with a script of tokens.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/task/lm.h"

namespace tealight {

// Ids 0..255 are bytes; then BOS "<s>", EOS "</s>", end of turn "<end>", and a few longer pieces.
class FakeTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256, kEos = 257, kEnd = 258, kFirstPiece = 259;
  FakeTokenizer() {
    bos = kBos;
    eos = kEos;
    end_tokens = {kEos, kEnd};
    adds_bos = true;
    for (int i = 0; i < 256; i++) pieces_.push_back(std::string(1, char(i)));
    for (const char* p : {"<s>", "</s>", "<end>", "Hello", " world", "\xf0\x9f", "\xa6\x99", "STOP"}) pieces_.push_back(p);
  }
  std::vector<TokenId> encode_parts(std::span<const TextPart> parts, bool add_special) const override {
    std::vector<TokenId> ids;
    if (add_special) ids.push_back(kBos);
    for (const TextPart& p : parts)
      for (size_t i = 0; i < p.text.size();) {
        TokenId id = TokenId(static_cast<unsigned char>(p.text[i]));
        size_t n = 1;
        for (TokenId s : {kBos, kEos, kEnd})
          if (p.parse_special && p.text.substr(i).starts_with(piece(s))) id = s, n = piece(s).size();
        ids.push_back(id);
        i += n;
      }
    return ids;
  }
  std::vector<TokenId> encode_pair(std::string_view, std::string_view, Options) const override { return {}; }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string out;
    for (TokenId id : ids) append_bytes(out, id, false, skip_special);
    return out;
  }
  void append_bytes(std::string& out, TokenId id, bool, bool skip_special) const override {
    if (!(skip_special && is_special(id))) out += pieces_[size_t(id)];
  }
  size_t size() const override { return pieces_.size(); }
  std::string_view piece(TokenId id) const override { return pieces_[size_t(id)]; }
  std::optional<TokenId> find(std::string_view text) const override {
    for (size_t i = 0; i < pieces_.size(); i++)
      if (pieces_[i] == text) return TokenId(i);
    return std::nullopt;
  }
  bool is_special(TokenId id) const override { return id >= kBos && id <= kEnd; }

 private:
  std::vector<std::string> pieces_;
};

struct FakeModel {
  std::vector<TokenId> script;           // the tokens that are likely after a prompt, then the end of turn
  size_t capacity = 1000;
  size_t evaluated = 0;                  // tokens, in all
  int fail_at = -1;                      // the step whose logits hold a NaN
  std::function<void()> on_step;         // called after each evaluation
  void say(std::string_view text) {
    script.clear();
    for (char c : text) script.push_back(TokenId(static_cast<unsigned char>(c)));
  }
};

class FakeSequence : public Sequence {
 public:
  FakeSequence(FakeModel& m, size_t vocab) : m_(m), logits_(vocab) { ids_.reserve(std::min<size_t>(m.capacity, 1 << 16)); }
  std::span<const float> eval(std::span<const TokenId> ids) override {
    TEALIGHT_CHECK(!ids.empty());
    if (ids_.size() + ids.size() > m_.capacity) fail(Code::request, "the context is full");
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    m_.evaluated += ids.size();
    step_ = fresh_ ? 0 : step_ + 1;
    fresh_ = false;
    const TokenId next = step_ < m_.script.size() ? m_.script[step_] : FakeTokenizer::kEnd;
    for (size_t i = 0; i < logits_.size(); i++) logits_[i] = float((i * 37 + ids_.size() * 11) % 101) / 101;
    logits_[size_t(next)] += 20;
    if (int(step_) == m_.fail_at) logits_[5] = __builtin_nanf("");
    if (m_.on_step) m_.on_step();
    return logits_;
  }
  Logits eval_last(std::span<const TokenId> ids, size_t rows, int) override {
    TEALIGHT_CHECK(rows == 1);
    return eval(ids);
  }
  void eval_all(std::span<const TokenId>, LogitsSink, void*) override {}
  size_t position() const override { return ids_.size(); }
  std::span<const TokenId> ids() const override { return ids_; }
  uint64_t snapshot_bytes(size_t) const override { return 0; }
  uint64_t tile_bytes() const override { return 16; }
  void save(size_t, size_t, std::byte*) const override {}
  void restore(const StateSnapshot&) override {}
  size_t capacity() const override { return m_.capacity; }
  size_t rewind(size_t position) override {
    TEALIGHT_CHECK(position <= ids_.size());
    ids_.resize(position);
    fresh_ = true;
    return position;
  }

 private:
  FakeModel& m_;
  std::vector<float> logits_;
  std::vector<TokenId> ids_;
  size_t step_ = 0;
  bool fresh_ = true;
};

class FakeLm : public Lm {
 public:
  FakeModel model;
  FakeLm() { model.say("Hello world"); }
  std::unique_ptr<Sequence> start(size_t) override { return std::make_unique<FakeSequence>(model, vocab()); }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const ChatTemplate& chat_template() override { return template_; }
  size_t vocab() const override { return tokenizer_.size(); }
  size_t context_length() const override { return model.capacity; }
  std::string_view architecture() const override { return "fake"; }
  std::string_view name() const override { return "fake"; }
  uint64_t weight_bytes() const override { return 1000; }
  void eval(std::span<SequenceWork> work) override {
    for (SequenceWork& w : work) {
      try {
        w.logits = w.sequence->eval(w.ids);
      } catch (const Error& e) {
        w.error = e;
      }
    }
  }
  uint64_t state_fingerprint() const override { return 1; }
  std::span<const std::shared_ptr<const Mapping>> files() const override { return {}; }
  std::vector<float> embed(std::span<const TokenId>) override { return {1.0f}; }

 private:
  FakeTokenizer tokenizer_;
  ChatTemplate template_ = ChatTemplate::parse(
      "{% for m in messages %}({{ m.role }}){{ m.content }}<end>{% endfor %}");
};

}  // namespace tealight
