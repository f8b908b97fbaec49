// tokenizer.json (Hugging Face tokenizers) -> a pipeline.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/unicode.h"
#include "src/text/pipeline.h"

namespace tealight {
namespace {

constexpr size_t kMaxFrame = 64;           // entries of a template around a text, and ids of one of its tokens
constexpr int64_t kMaxGap = 1 << 20;       // ids that name nothing may not outnumber the entries by more

class Loader {
 public:
  Loader(Json root, std::string_view what) : root_(root), what_(what), model_(root["model"]) {}

  std::shared_ptr<PipelineTokenizer> load() {
    if (!root_.is_object()) bad("not a JSON object");
    if (!model_.is_object()) bad("model: missing");
    type_ = model_type();
    read_vocab();
    read_added();
    build_vocab();
    out_->normalizer = Normalizer::from_json(root_["normalizer"]);
    out_->pre_tokenizer = PreTokenizer::from_json(root_["pre_tokenizer"]);
    out_->decoder = TokenDecoder::from_json(root_["decoder"]);
    out_->bad_bytes_singly = out_->decoder.step<ByteFallback>();
    build_model();
    read_post_processor(root_["post_processor"], 0);
    out_->list_added = [tokens = added_] { return tokens; };
    return out_;
  }

 private:
  template <class... A>
  [[noreturn]] void bad(const A&... a) const {
    fail(Code::tokenizer, what_, ": ", a...);
  }
  static bool flag(Json j, std::string_view key, bool otherwise = false) {
    const Json v = j[key];
    return v && !v.is_null() ? v.boolean(key) : otherwise;
  }
  static std::string text(Json j, std::string_view key) {
    const Json v = j[key];
    return std::string(v && !v.is_null() ? v.string(key) : std::string_view());
  }

  std::string_view model_type() const {
    if (Json t = model_["type"]) return t.string("model.type");
    if (model_["merges"]) return "BPE";        // files from before the field
    if (model_["vocab"].is_array()) return "Unigram";
    return model_["continuing_subword_prefix"] ? "WordPiece" : "WordLevel";
  }

  void put(int64_t id, std::string_view piece) {
    if (id < 0 || id > int64_t(entries_) + kMaxGap) bad("id ", id, " of ", quoted(piece), " is out of range; there are ", entries_, " entries");
    if (size_t(id) >= pieces_.size()) pieces_.resize(size_t(id) + 1);
    std::string_view& p = pieces_[size_t(id)];
    if (!p.empty() && p != piece) bad("id ", id, " is both ", quoted(p), " and ", quoted(piece));
    p = piece;
  }
  void read_vocab() {
    const Json vocab = model_["vocab"];
    if (type_ == "Unigram" ? !vocab.is_array() : !vocab.is_object()) bad("model.vocab: missing, or of the wrong type");
    entries_ = vocab.size() + root_["added_tokens"].size();
    for (auto [piece, id] : vocab.members()) put(id.integer("model.vocab: an id"), piece);
    int64_t next = 0;
    for (Json e : vocab.elements()) {
      if (e.size() != 2) bad("model.vocab: entry ", next, " is not a pair of piece and score");
      put(next++, e[size_t(0)].string("model.vocab: a piece"));
      scores_.push_back(e[1].number("model.vocab: a score"));
    }
    if (pieces_.empty()) bad("model.vocab: is empty");
    n_model_ = pieces_.size();
  }
  void read_added() {
    for (Json a : root_["added_tokens"].elements()) {
      AddedToken t;
      t.content = a["content"].string("added_tokens: content");
      t.special = flag(a, "special");
      t.lstrip = flag(a, "lstrip");
      t.rstrip = flag(a, "rstrip");
      t.single_word = flag(a, "single_word");
      t.normalized = flag(a, "normalized", !t.special);
      const int64_t id = a["id"].integer("added_tokens: id");
      const bool known = id >= 0 && size_t(id) < n_model_ && !pieces_[size_t(id)].empty();
      put(id, a["content"].string("added_tokens: content"));
      t.id = TokenId(id);
      kinds_.push_back(t.special ? TokenKind::control : known ? TokenKind::user_defined : TokenKind::added);
      added_.push_back(std::move(t));
    }
  }
  void build_vocab() {
    auto v = std::make_shared<Vocab>();
    size_t bytes = 0;
    for (std::string_view p : pieces_) bytes += 8 + p.size();
    v->owned.reserve(bytes);
    for (std::string_view p : pieces_) StringList::append(v->owned, p);
    v->pieces = StringList(std::as_bytes(std::span(v->owned)), pieces_.size(), "model.vocab");
    v->own_kinds.assign(pieces_.size(), TokenKind::normal);
    for (size_t i = 0; i < added_.size(); i++) v->own_kinds[size_t(added_[i].id)] = kinds_[i];
    vocab_ = v;
    out_->vocab = std::move(v);
  }

  // An id by its piece, -1 when there is none: special pieces too.
  TokenId id_of(std::string_view piece) const { return vocab_->find(piece).value_or(-1); }

  void build_model() {
    if (type_ == "BPE") return build_bpe();
    if (type_ == "Unigram") return build_unigram();
    if (type_ != "WordPiece" && type_ != "WordLevel") bad("model.type ", quoted(type_), " is not known");
    WordPieceOptions o;
    o.whole_words = type_ == "WordLevel";
    if (!o.whole_words) {
      o.continuing_prefix = model_["continuing_subword_prefix"] ? text(model_, "continuing_subword_prefix") : "##";
      if (Json n = model_["max_input_chars_per_word"]) o.max_chars = size_t(n.unsigned_integer("model.max_input_chars_per_word"));
    }
    o.unknown = id_of(text(model_, "unk_token"));
    if (o.unknown >= 0) out_->unk = o.unknown;
    out_->model = make_wordpiece(vocab_, std::move(o));
  }

  void build_bpe() {
    BpeOptions o;
    o.byte_fallback = flag(model_, "byte_fallback");
    o.fuse_unknown = flag(model_, "fuse_unk");
    o.ignore_merges = flag(model_, "ignore_merges");
    o.continuing_prefix = text(model_, "continuing_subword_prefix");
    o.end_of_word = text(model_, "end_of_word_suffix");
    o.unknown = id_of(text(model_, "unk_token"));
    if (o.unknown >= 0) out_->unk = o.unknown;
    auto merges = std::make_shared<MergeList>();
    size_t n = 0;
    for (Json m : model_["merges"].elements()) add_merge(*merges, m, n++, o.continuing_prefix);
    merges->list = StringList(std::as_bytes(std::span(merges->owned)), n, "model.merges");
    out_->model = make_bpe(vocab_, std::move(merges), std::move(o));
  }
  void add_merge(MergeList& to, Json m, size_t n, const std::string& prefix) {
    std::string_view left, right;
    if (m.is_array()) {
      if (m.size() != 2) bad("model.merges: entry ", n, " is not a pair");
      left = m[size_t(0)].string("model.merges: a part");
      right = m[1].string("model.merges: a part");
    } else {
      const std::string_view s = m.string("model.merges: an entry");
      const size_t space = s.find(' ');
      if (space == s.npos || s.find(' ', space + 1) != s.npos) bad("model.merges: entry ", n, ", ", quoted(s), ", is not two parts");
      left = s.substr(0, space);
      right = s.substr(space + 1);
    }
    const std::string both = std::string(left) + std::string(right.substr(std::min(prefix.size(), right.size())));
    for (std::string_view p : {left, right, std::string_view(both)})
      if (!vocab_->find(p)) bad("model.merges: entry ", n, ": ", quoted(p), " is not in the vocabulary");
    // Stored without the prefix, as the parts lie in a word; a merge that could only apply to no place is never found.
    uint32_t first = 0;
    if (!prefix.empty()) {
      if (left.starts_with(prefix)) left.remove_prefix(prefix.size());
      else first = 1u << 31;
      if (right.starts_with(prefix)) right.remove_prefix(prefix.size());
      else right = {};
    }
    StringList::append(to.owned, cat(left, " ", right));
    to.splits.push_back(uint32_t(left.size()) | first);
  }

  void build_unigram() {
    UnigramOptions o;
    o.byte_fallback = flag(model_, "byte_fallback");
    if (Json unk = model_["unk_id"]; unk && !unk.is_null()) {
      const uint64_t id = unk.unsigned_integer("model.unk_id");
      if (id >= scores_.size()) bad("model.unk_id ", id, " is not in the vocabulary of ", scores_.size());
      out_->unk = o.unknown = TokenId(id);
    }
    double least = 0;
    for (double s : scores_) least = std::min(least, s);
    o.unknown_score = least - 10;              // the penalty of SentencePiece (unigram_model.cc)
    o.scores = scores_;
    o.scores.resize(vocab_->size(), 0.0);
    out_->model = make_unigram(vocab_, std::move(o));
  }

  TokenId checked(Json id, std::string_view what) const {
    const uint64_t v = id.unsigned_integer(what);
    if (v >= vocab_->size()) bad(what, ": id ", v, " is not in the vocabulary of ", vocab_->size());
    return TokenId(v);
  }
  void read_post_processor(Json p, int depth) {
    if (!p || p.is_null()) return;
    if (depth > 16) bad("post_processor: sequences nest too deeply");
    const std::string_view type = p["type"].string("post_processor.type");
    if (type == "Sequence") {
      for (Json e : p["processors"].elements()) read_post_processor(e, depth + 1);
    } else if (type == "TemplateProcessing") {
      out_->frame.single = read_template(p["single"], p["special_tokens"]);
      out_->frame.pair = read_template(p["pair"], p["special_tokens"]);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const TokenId cls = checked(p["cls"][1], "post_processor.cls"), sep = checked(p["sep"][1], "post_processor.sep");
      out_->frame.single = {cls, kTextA, sep};
      out_->frame.pair = {cls, kTextA, sep, kTextB, sep};
      if (type[0] == 'R') out_->frame.pair = {cls, kTextA, sep, sep, kTextB, sep};
    } else if (type != "ByteLevel") {
      bad("post_processor type ", quoted(type), " is not supported");
    }
  }
  std::vector<TokenId> read_template(Json items, Json specials) const {
    std::vector<TokenId> ids;
    for (Json item : items.elements()) {
      if (ids.size() > kMaxFrame) bad("post_processor: a template of more than ", kMaxFrame, " tokens");
      if (Json s = item["Sequence"]) {
        ids.push_back(s["id"].string("post_processor: a sequence") == "B" ? kTextB : kTextA);
        continue;
      }
      const std::string_view name = item["SpecialToken"]["id"].string("post_processor: a special token");
      const Json listed = specials[name]["ids"];
      if (!listed.is_array()) bad("post_processor.special_tokens: ", quoted(name), " has no ids");
      if (listed.size() > kMaxFrame) bad("post_processor.special_tokens: ", quoted(name), " has more than ", kMaxFrame, " ids");
      for (Json id : listed.elements()) ids.push_back(checked(id, "post_processor.special_tokens"));
    }
    return ids;
  }

  Json root_;
  std::string_view what_;
  Json model_;
  std::string_view type_;
  size_t entries_ = 0, n_model_ = 0;       // entries in all; ids up to the largest of the model's own
  std::vector<std::string_view> pieces_;
  std::vector<double> scores_;
  std::vector<AddedToken> added_;
  std::vector<TokenKind> kinds_;           // of added_
  std::shared_ptr<const Vocab> vocab_;
  std::shared_ptr<PipelineTokenizer> out_ = std::make_shared<PipelineTokenizer>();
};

// A token named by tokenizer_config.json: its text, or an object with its content.
std::optional<TokenId> named(Json config, std::string_view key, const Vocab& v) {
  Json j = config[key];
  if (j.is_object()) j = j["content"];
  if (!j.is_string()) return std::nullopt;
  return v.find(j.string(key));
}

// `chat_template` is one template, or a list of named ones.
std::string chat_template(Json config) {
  const Json t = config["chat_template"];
  if (t.is_string()) return std::string(t.string("chat_template"));
  for (Json e : t.elements())
    if (e["name"].is_string() && e["name"].string("name") == "default" && e["template"].is_string())
      return std::string(e["template"].string("template"));
  return {};
}

void read_config(PipelineTokenizer& t, Json config) {
  const Vocab& v = *t.vocab;
  if (auto id = named(config, "bos_token", v)) t.bos = id;
  if (auto id = named(config, "eos_token", v)) t.eos = id;
  if (auto id = named(config, "pad_token", v)) t.pad = id;
  if (auto id = named(config, "unk_token", v)) t.unk = id;
  t.chat_template = chat_template(config);
  // These classes put BOS and EOS as the config says, whatever the post-processor holds.
  const Json cls = config["tokenizer_class"];
  const std::string_view name = cls.is_string() ? cls.string("tokenizer_class") : std::string_view();
  if (!name.starts_with("Llama") && !name.starts_with("Gemma") && !name.starts_with("CodeLlama")) return;
  auto set = [&](const char* key, std::optional<TokenId> id, bool front) {
    const Json want = config[key];
    if (!want.is(Json::Kind::boolean) || !id) return;
    for (auto* ids : {&t.frame.single, &t.frame.pair})
      for (TokenId text : {kTextA, kTextB}) {
        auto at = std::find(ids->begin(), ids->end(), text);
        if (at == ids->end()) continue;
        const bool has = front ? at != ids->begin() && at[-1] == *id : at + 1 != ids->end() && at[1] == *id;
        if (has == want.boolean(key)) continue;
        if (has) ids->erase(front ? at - 1 : at + 1);
        else ids->insert(front ? at : at + 1, *id);
      }
  };
  set("add_bos_token", t.bos, true);
  set("add_eos_token", t.eos, false);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config, std::string_view what) {
  const JsonDoc doc = JsonDoc::parse(tokenizer_json, what);
  std::shared_ptr<PipelineTokenizer> t = Loader(doc.root(), what).load();
  JsonDoc settings;
  if (!config.empty()) settings = JsonDoc::parse(config, "tokenizer_config.json", true);
  read_config(*t, settings.root());
  t->read_frame();
  if (t->eos) t->end_tokens.push_back(*t->eos);
  add_end_pieces(*t, *t->vocab);
  if (!t->eos && !t->end_tokens.empty()) t->eos = t->end_tokens[0];
  return t;
}

}  // namespace tealight
