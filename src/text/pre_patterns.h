// How byte-level vocabularies cut text, by the name that GGUF files give it (tokenizer.ggml.pre).
#pragma once
#include <span>
#include <string_view>

namespace tealight {

struct PrePatterns {
  std::span<const char* const> patterns;   // applied one after the other, each to the pieces of the one before
  bool ignore_merges = false;              // a piece that is a token needs no merges
  bool adds_bos = false;                   // unless the file says otherwise
  bool has_default_bos = true;             // id 11 is BOS where the file names none
  bool marks = false;                      // SentencePiece's way: spaces are U+2581, bytes <0xXX>, no letters for bytes
  bool frames_words = false;               // RoBERTa's frame for two texts
};

// Null for an unknown name. An empty name is that of files from before the key existed.
const PrePatterns* find_pre_patterns(std::string_view name);

}  // namespace tealight
