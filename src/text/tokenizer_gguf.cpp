// The tokenizer.ggml.* keys of a GGUF -> a pipeline. Arrays stay where they are in the file; only where each piece begins is
// noted. Indices, patterns and the list of added tokens are made when text is first encoded; a packed file has them ready
// (tables.h), and then nothing here walks the vocabulary.
#include <algorithm>
#include <cstring>
#include <limits>

#include "src/base/error.h"
#include "src/io/gguf.h"
#include "src/text/pipeline.h"
#include "src/text/pre_patterns.h"

namespace tealight {
namespace {

constexpr const char* kPrefix = "tokenizer.ggml.";

class Loader {
 public:
  Loader(std::shared_ptr<const Gguf> file, const TokenizerTables* tables) : file_(std::move(file)), tables_(tables) {}

  std::shared_ptr<const Tokenizer> load() {
    model_ = string("model");
    if (model_.empty()) bad("model", "missing: the file names no tokenizer");
    read_vocab();
    read_named_tokens();
    if (model_ == "gpt2" || model_ == "gemma4") byte_pairs();
    else if (model_ == "llama") sentence_pieces();
    else if (model_ == "t5") unigram();
    else if (model_ == "bert") word_pieces();
    else bad("model", "the tokenizer model ", quoted(model_), " is not known");
    list_added_tokens();
    if (auto t = file_->string("tokenizer.chat_template")) out_->chat_template = *t;
    find_ends();
    mark_end_pieces();
    return out_;
  }

 private:
  template <class... A>
  [[noreturn]] static void bad(std::string_view key, const A&... a) {
    fail(Code::tokenizer, kPrefix, key, ": ", a...);
  }
  static std::string full(std::string_view key) { return cat(kPrefix, key); }
  std::string_view string(std::string_view key) const { return file_->string(full(key)).value_or(std::string_view()); }
  bool flag(std::string_view key, bool otherwise) const { return file_->boolean(full(key)).value_or(otherwise); }
  // A token id that the file names; one outside the vocabulary is none.
  std::optional<TokenId> token(std::string_view key) const {
    const auto id = file_->uint(full(key));
    return id && *id < vocab_->size() ? std::optional<TokenId>(TokenId(*id)) : std::nullopt;
  }

  // An array of exactly n elements of one of the types, or none where the key is absent.
  GgufValue array(std::string_view key, std::initializer_list<GgufType> types, uint64_t n, const char* want) const {
    const GgufValue v = file_->find(full(key));
    if (!v) return v;
    if (!v.is_array || std::find(types.begin(), types.end(), v.type) == types.end()) bad(key, "expected an array of ", want);
    if (v.count != n) bad(key, v.count, " elements for ", n, " tokens");
    return v;
  }
  static std::span<const std::byte> bytes(const GgufValue& v) { return {v.data, size_t(v.bytes)}; }

  std::span<const uint32_t> table(TokenizerTables::Table which) const {
    const std::span<const uint32_t> t = (*tables_)[which];
    if (t.empty()) bad("tokens", "the file lacks table ", int(which), " of the tokenizer");
    return t;
  }
  const PieceFacts* facts() const {
    const std::span<const uint32_t> t = table(TokenizerTables::piece_facts);
    if (t.size_bytes() != sizeof(PieceFacts)) bad("tokens", "a table of facts of ", t.size_bytes(), " bytes");
    return reinterpret_cast<const PieceFacts*>(t.data());
  }
  StringList strings(const GgufValue& v, const char* key, TokenizerTables::Table begins) const {
    if (!tables_) return StringList(bytes(v), v.count, full(key));
    const std::span<const uint32_t> b = v.count ? table(begins) : std::span<const uint32_t>();
    if (b.size() != v.count) bad(key, v.count, " strings with ", b.size(), " places");
    return StringList(bytes(v), b);
  }

  void read_vocab() {
    const GgufValue tokens = file_->find(full("tokens"));
    if (!tokens) bad("tokens", "missing: the file has a tokenizer without a token list");
    if (!tokens.is_array || tokens.type != GgufType::string) bad("tokens", "expected an array of strings");
    if (tokens.count == 0 || tokens.count > uint64_t(std::numeric_limits<TokenId>::max())) bad("tokens", tokens.count, " tokens");
    vocab_ = std::make_shared<Vocab>();
    vocab_->pieces = strings(tokens, "tokens", TokenizerTables::piece_begins);
    if (tables_) vocab_->use({table(TokenizerTables::piece_slots), facts()});
    if (const GgufValue v = array("token_type", {GgufType::i32, GgufType::u32}, tokens.count, "32-bit integers")) vocab_->kinds = v.data;
    if (const GgufValue v = array("scores", {GgufType::f32, GgufType::i32}, tokens.count, "32-bit floats")) {
      if (v.type == GgufType::f32) vocab_->scores = v.data;
      else take_integer_scores(v);
    }
    out_->vocab = vocab_;
  }
  void take_integer_scores(const GgufValue& v) {
    for (size_t i = 0; i < v.count; i++) {
      int32_t s;
      std::memcpy(&s, v.data + 4 * i, 4);
      const auto f = float(s);
      vocab_->owned.append(reinterpret_cast<const char*>(&f), 4);
    }
    vocab_->scores = reinterpret_cast<const std::byte*>(vocab_->owned.data());
  }

  void read_named_tokens() {
    out_->bos = token("bos_token_id");
    out_->eos = token("eos_token_id");
    out_->unk = token("unknown_token_id");
    out_->pad = token("padding_token_id");
  }
  // The id that a kind of tokenizer has by custom, where the file names none.
  void customary(std::optional<TokenId>& id, TokenId value) {
    if (!id && vocab_->contains(value)) id = value;
  }
  void frame(bool bos, bool eos) {
    out_->adds_bos = flag("add_bos_token", bos) && out_->bos;
    out_->adds_eos = flag("add_eos_token", eos) && out_->eos;
    Frame& f = out_->frame;
    f.single.clear();
    f.pair.clear();
    for (TokenId text : {kTextA, kTextB}) {
      if (out_->adds_bos) f.pair.push_back(*out_->bos);
      f.pair.push_back(text);
      if (out_->adds_eos) f.pair.push_back(*out_->eos);
      if (text == kTextA) f.single = f.pair;
    }
  }

  void byte_pairs() {
    const std::string_view pre = model_ == "gemma4" ? "gemma4" : string("pre");
    const PrePatterns* p = find_pre_patterns(pre);
    if (!p) bad("pre", "the pre-tokenizer ", quoted(pre), " is not known");
    if (p->has_default_bos) customary(out_->bos, 11);
    customary(out_->eos, 11);
    const GgufValue m = file_->find(full("merges"));
    if (!m) bad("merges", "missing");
    if (!m.is_array || m.type != GgufType::string) bad("merges", "expected an array of strings");
    auto merges = std::make_shared<MergeList>();
    merges->list = strings(m, "merges", TokenizerTables::merge_begins);
    if (tables_) merges->slots = table(TokenizerTables::merge_slots);
    BpeOptions o;
    o.ignore_merges = p->ignore_merges || p->marks;
    o.byte_fallback = p->marks;
    o.unknown = p->marks ? out_->unk.value_or(-1) : -1;
    out_->model = make_bpe(vocab_, std::move(merges), std::move(o));
    out_->late_pre_tokenizer = [p] {
      PreTokenizer t;
      for (const char* pattern : p->patterns) {
        SplitStep s;
        s.regex = std::make_shared<Regex>(Regex::compile(pattern));
        t.steps.push_back(std::move(s));
      }
      if (!p->marks) t.steps.push_back(ByteLevelStep{});
      return t;
    };
    if (p->marks) {
      use_marks(false);
    } else {
      out_->decoder.steps.push_back(LettersToBytes{});
    }
    frame(p->adds_bos, false);
    if (pre == "gemma4") frame_always_bos();
    if (p->frames_words && out_->adds_bos && out_->adds_eos)
      out_->frame.pair = {*out_->bos, kTextA, *out_->eos, *out_->eos, kTextB, *out_->eos};
  }
  void frame_always_bos() {
    if (out_->adds_bos || !out_->bos) return;  // some files deny it; the models fail without
    for (auto* ids : {&out_->frame.single, &out_->frame.pair}) ids->insert(ids->begin(), *out_->bos);
    out_->adds_bos = true;
  }

  void use_marks(bool prefix) {
    if (prefix) out_->normalizer.steps.push_back(Prepend{std::string(kSpaceMark)});
    out_->normalizer.steps.push_back(Replace{" ", nullptr, std::string(kSpaceMark)});
    out_->decoder.steps.push_back(Replace{std::string(kSpaceMark), nullptr, " "});
    out_->decoder.steps.push_back(ByteFallback{});
    if (prefix) out_->decoder.steps.push_back(StripChars{" ", 1, 0, true});
    out_->bad_bytes_singly = true;
  }
  void sentence_pieces() {
    customary(out_->bos, 1);
    customary(out_->eos, 2);
    customary(out_->unk, 0);
    if (!vocab_->scores) bad("scores", "missing; SentencePiece's BPE needs them");
    use_marks(flag("add_space_prefix", true));
    out_->model = make_sentencepiece_bpe(vocab_, out_->unk.value_or(-1));
    frame(true, false);
  }

  void unigram() {
    customary(out_->eos, 1);
    customary(out_->unk, 2);
    customary(out_->pad, 0);
    if (!vocab_->scores) bad("scores", "missing; a unigram model needs them");
    SentencePieceRules rules{nullptr, flag("add_space_prefix", true), flag("remove_extra_whitespaces", false)};
    if (const GgufValue v = file_->find(full("precompiled_charsmap"))) {
      if (!v.is_array || (v.type != GgufType::u8 && v.type != GgufType::i8)) bad("precompiled_charsmap", "expected an array of bytes");
      rules.rules = CharsMap::parse({reinterpret_cast<const char*>(v.data), size_t(v.bytes)}, full("precompiled_charsmap"));
    }
    out_->normalizer.steps.push_back(rules);
    UnigramOptions o;
    o.unknown = out_->unk.value_or(-1);
    float least = std::numeric_limits<float>::max();
    for (size_t i = 0; i < vocab_->size(); i++)
      if (vocab_->kind(TokenId(i)) == TokenKind::normal) least = std::min(least, vocab_->score(TokenId(i)));
    o.unknown_score = double(least - 10.0f);   // the penalty of SentencePiece (unigram_model.cc)
    out_->model = make_unigram(vocab_, std::move(o));
    out_->decoder.steps.push_back(Replace{std::string(kSpaceMark), nullptr, " "});
    out_->decoder.steps.push_back(ByteFallback{});
    out_->decoder.steps.push_back(StripChars{" ", 1, 0, true});
    out_->bad_bytes_singly = true;
    frame(false, true);
  }

  // The vocabulary is rewritten by converters: what begins a word has the mark, what continues one has no "##".
  void word_pieces() {
    if (auto cls = token("cls_token_id")) out_->bos = cls;
    customary(out_->bos, 101);
    customary(out_->unk, 100);
    customary(out_->pad, 0);
    std::optional<TokenId> sep = token("seperator_token_id");   // so the key is spelled
    customary(sep, 102);
    if (!out_->eos) out_->eos = sep;
    const bool lower = flag("normalizer.lowercase", true);
    out_->normalizer.steps.push_back(BertCleanup{true, true, flag("normalizer.strip_accents", lower), lower, true});
    for (bool (*chars)(uint32_t) : {is_space, is_punctuation}) {
      SplitStep s;
      s.chars = chars;
      s.behavior = chars == is_space ? SplitBehavior::removed : SplitBehavior::isolated;
      out_->pre_tokenizer.steps.push_back(std::move(s));
    }
    WordPieceOptions o;
    o.word_prefix = kSpaceMark;
    o.unknown = out_->unk.value_or(-1);
    out_->model = make_wordpiece(vocab_, std::move(o));
    out_->decoder.steps.push_back(JoinWords{"", std::string(kSpaceMark), true});
    Frame& f = out_->frame;
    f.single = {kTextA};
    f.pair = {kTextA};
    if (out_->bos) f.single.insert(f.single.begin(), *out_->bos), f.pair.insert(f.pair.begin(), *out_->bos);
    if (sep) f.single.push_back(*sep), f.pair.push_back(*sep);
    f.pair.push_back(kTextB);
    if (sep) f.pair.push_back(*sep);
    out_->adds_bos = bool(out_->bos);
    out_->adds_eos = bool(sep);
  }

  // Tokens that take the white space after them along are not marked in the file; these models' are known by name.
  bool strips_after() const {
    std::string name(file_->string("general.name").value_or(std::string_view()));
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    return name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
  }
  void list_added_tokens() {
    const std::span<const uint32_t> ids = tables_ ? (*tables_)[TokenizerTables::added] : std::span<const uint32_t>();
    out_->list_added = [file = file_, vocab = vocab_, strip = strips_after(), walk = !tables_, ids] {
      std::vector<AddedToken> list;
      if (walk)
        for (size_t i = 0; i < vocab->size(); i++)
          if (!vocab->plain(i)) add(list, *vocab, TokenId(i), strip);
      for (uint32_t id : ids) add(list, *vocab, TokenId(id), strip);
      return list;
    };
  }
  static void add(std::vector<AddedToken>& list, const Vocab& v, TokenId id, bool strip) {
    const TokenKind k = v.contains(id) ? v.kind(id) : TokenKind::normal;
    if (k != TokenKind::control && k != TokenKind::unknown && k != TokenKind::user_defined) return;
    AddedToken t;
    t.id = id;
    t.content = v.piece(id);
    t.special = k != TokenKind::user_defined;
    t.rstrip = strip && t.content != "<unk>" && t.content != "<s>" && t.content != "<|endoftext|>";
    list.push_back(std::move(t));
  }

  void find_ends() {
    if (tables_) {
      for (uint32_t id : (*tables_)[TokenizerTables::ends])
        if (vocab_->contains(TokenId(id))) out_->end_tokens.push_back(TokenId(id));
      return;
    }
    if (out_->eos) out_->end_tokens.push_back(*out_->eos);
    for (const char* key : {"eot_token_id", "eom_token_id"})
      if (auto id = token(key); id && std::find(out_->end_tokens.begin(), out_->end_tokens.end(), *id) == out_->end_tokens.end())
        out_->end_tokens.push_back(*id);
    add_end_pieces(*out_, *vocab_);
  }
  // What ends an answer is never shown, also where a file calls it ordinary text.
  void mark_end_pieces() {
    for (TokenId id : out_->end_tokens)
      if (vocab_->kind(id) != TokenKind::control) vocab_->control.push_back(id);
    std::sort(vocab_->control.begin(), vocab_->control.end());
  }

  std::shared_ptr<const Gguf> file_;
  const TokenizerTables* tables_;
  std::string_view model_;
  std::shared_ptr<Vocab> vocab_;
  std::shared_ptr<PipelineTokenizer> out_ = std::make_shared<PipelineTokenizer>();
};

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_gguf(std::shared_ptr<const Gguf> file, const TokenizerTables* tables) {
  return Loader(std::move(file), tables).load();
}

}  // namespace tealight
