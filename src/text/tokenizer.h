// Text to token ids and back.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tealight {

class Gguf;
struct TokenizerTables;
using TokenId = int32_t;

// A piece of a prompt. Special tokens are recognized only in text that a template or an operator wrote, never in a user's.
struct TextPart {
  std::string_view text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  // From a tokenizer.json (Hugging Face tokenizers). `config` is the text of tokenizer_config.json or empty (it names
  // bos/eos and whether a BOS is added). Errors: Code::tokenizer, Code::format.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view tokenizer_json, std::string_view config, std::string_view what);
  // From the tokenizer.ggml.* keys of a GGUF; views into its mapping, which `file` keeps alive. Nothing is parsed into
  // maps before text must be encoded. Errors name the key.
  // `tables`: what it would find out by walking the vocabulary, from a packed file; it lives as long as `file`, and what is in
  // it need not be sound (see tables.h).
  static std::shared_ptr<const Tokenizer> from_gguf(std::shared_ptr<const Gguf> file, const TokenizerTables* tables = nullptr);
  virtual ~Tokenizer() = default;

  struct Options {
    bool add_special = true;      // BOS/EOS and the like, as the model wants them
    bool parse_special = false;   // recognize special tokens written in the text
  };
  std::vector<TokenId> encode(std::string_view text, Options o) const;
  // Parts are joined as one text would be: a special token may not arise from, nor span, a part that does not parse them.
  virtual std::vector<TokenId> encode_parts(std::span<const TextPart> parts, bool add_special) const = 0;
  virtual std::vector<TokenId> encode_pair(std::string_view a, std::string_view b, Options o) const = 0;
  // Whole-sequence decoding, as the reference's decoder does it (bytes that are not UTF-8 become U+FFFD).
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  // The bytes that a token adds to a running text (may be half a character); empty for special tokens when skip_special.
  // `first`: the token opens the text (SentencePiece drops one leading space there).
  virtual void append_bytes(std::string& out, TokenId id, bool first, bool skip_special) const = 0;

  virtual size_t size() const = 0;                         // number of ids (largest id + 1)
  virtual std::string_view piece(TokenId id) const = 0;    // as the vocabulary writes it
  virtual std::optional<TokenId> find(std::string_view piece) const = 0;
  virtual bool is_special(TokenId id) const = 0;           // control tokens: not shown to users

  std::optional<TokenId> bos, eos, pad, unk;
  std::vector<TokenId> end_tokens;                         // all that the file names: eos, eot, eom, ...
  bool adds_bos = false, adds_eos = false;                 // what encode() with add_special does
  bool bad_bytes_singly = false;                           // decoding writes a U+FFFD for each bad byte (SentencePiece), not for
                                                           // each ill-formed stretch (byte-level)
  std::string chat_template;                               // from the same file; empty when there is none
};

// The ids of a prompt: what the tokenizer frames a text with is left out where the parts have written it already, so that
// there is exactly one BOS if the model wants one. What a template writes is never taken away.
std::vector<TokenId> encode_prompt(const Tokenizer& t, std::span<const TextPart> parts);

// Turns a stream of ids into text that never ends in half a character: bytes are held until the character is complete.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& t, bool skip_special = true) : t_(&t), skip_special_(skip_special) {}
  std::string_view push(TokenId id);   // the text that became complete; valid until the next call
  std::string_view finish();           // what is left, with U+FFFD for what is incomplete

 private:
  const Tokenizer* t_;
  bool skip_special_, first_ = true;
  std::string pending_, out_;
};

}  // namespace tealight
