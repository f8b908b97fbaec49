// The patterns are those of the models' own tokenizer files; which name means which is a convention of GGUF converters.
#include "src/text/pre_patterns.h"

#include "src/text/pretokenizer.h"

namespace tealight {
namespace {

// clang-format off
constexpr const char* kGpt2[] = {
    kGpt2Pattern};
constexpr const char* kLlama3[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kQwen2[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kQwen35[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kDigits[] = {
    R"re(\p{N})re",
    kGpt2Pattern};
constexpr const char* kFalcon[] = {
    R"re([\p{P}\$\+<=>\^~\|`]+)re",
    kGpt2Pattern,
    R"re([0-9][0-9][0-9])re"};
constexpr const char* kDeepseekLlm[] = {
    R"re([\r\n])re",
    R"re(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)re",
    R"re(\s?[!-/:-~！-／：-～‘-‟　-。]+)re",
    R"re(\s+$)re",
    R"re([一-龥ࠀ-一가-퟿]+)re",
    R"re(\p{N}+)re"};
constexpr const char* kDeepseekCoder[] = {
    R"re([\r\n])re",
    R"re(\s?\p{L}+)re",
    R"re(\s?\p{P}+)re",
    R"re([一-龥ࠀ-一가-퟿]+)re",
    R"re(\p{N})re"};
constexpr const char* kDeepseek3[] = {
    R"re(\p{N}{1,3})re",
    R"re([一-龥぀-ゟ゠-ヿ]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kTekken[] = {
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kGpt4o[] = {
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kTinyAya[] = {
    R"re(\d{1,3}(?=(?:\d{3})*\b))re",
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kYoutu[] = {
    R"re([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)re",
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kPoro[] = {
    R"re( ?[^(\s|.,!?…。，、।۔،)]+)re"};
constexpr const char* kViking[] = {
    R"re( ?[^(\s|.,!?…。，、।۔،)]+)re",
    R"re(\p{N})re"};
constexpr const char* kChameleon[] = {
    R"re(<sentinel:[0-9]+>)re",
    R"re((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)re",
    R"re(([\t\n]|    |  ))re",
    R"re(\p{N})re",
    R"re([\p{P}!-/:-@\[-`{-~])re",
    kGpt2Pattern};
constexpr const char* kSuperBpe[] = {
    R"re(\p{N}+)re",
    R"re((?=(\d{3})+(?!\d)))re"};
constexpr const char* kBailing[] = {
    R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)re"};
constexpr const char* kSeedCoder[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kUfakzeka[] = {
    R"re([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kJais2[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})re"};
constexpr const char* kAfmoe[] = {
    R"re(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))re",
    R"re([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kLaguna[] = {
    R"re([^\n]+|[\n]+)re",
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kExaoneMoe[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)re"};
constexpr const char* kMiniCpm5[] = {
    R"re(\p{N}{1,3})re",
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr const char* kSpark[] = {
    R"re(\p{N}{1,3})re",
    R"re([一-龥぀-ゟ゠-ヿ]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)re",
    R"re(\p{N})re"};
constexpr const char* kLines[] = {
    R"re([^\n]+|[\n]+)re"};
constexpr const char* kDefault[] = {
    R"re([\p{P}\$\+<=>\^~\|]+)re",
    kGpt2Pattern,
    R"re(\p{N}+)re",
    R"re([0-9][0-9][0-9])re"};

struct Row {
  const char* names;   // separated by spaces
  PrePatterns patterns;
};
const Row kRows[] = {
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo jais trillion granite-docling exaone4", {.patterns = kGpt2}},
    {"jina-v1-en jina-v2-code roberta-bpe", {.patterns = kGpt2, .frames_words = true}},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", {.patterns = kLlama3, .ignore_merges = true, .adds_bos = true}},
    {"dbrx smaug-bpe", {.patterns = kLlama3}},
    {"chatglm-bpe", {.patterns = kLlama3, .has_default_bos = false}},
    {"glm4 glm5", {.patterns = kLlama3, .ignore_merges = true, .has_default_bos = false}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2", {.patterns = kQwen2}},
    {"qwen35", {.patterns = kQwen35}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", {.patterns = kDigits}},
    {"falcon", {.patterns = kFalcon}},
    {"deepseek-llm", {.patterns = kDeepseekLlm}},
    {"deepseek-coder", {.patterns = kDeepseekCoder}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {.patterns = kDeepseek3}},
    {"tekken", {.patterns = kTekken, .ignore_merges = true, .adds_bos = true}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {.patterns = kGpt4o}},
    {"granite-embed-multi-97m", {.patterns = kGpt4o, .ignore_merges = true}},
    {"tiny_aya cohere2moe", {.patterns = kTinyAya}},
    {"youtu", {.patterns = kYoutu, .ignore_merges = true}},
    {"poro-chat bloom gpt3-finnish", {.patterns = kPoro}},
    {"viking", {.patterns = kViking}},
    {"chameleon", {.patterns = kChameleon, .adds_bos = true}},
    {"superbpe", {.patterns = kSuperBpe}},
    {"bailingmoe bailingmoe2 llada-moe", {.patterns = kBailing}},
    {"seed-coder", {.patterns = kSeedCoder}},
    {"ufakzeka", {.patterns = kUfakzeka}},
    {"jais-2", {.patterns = kJais2}},
    {"afmoe", {.patterns = kAfmoe}},
    {"laguna", {.patterns = kLaguna}},
    {"exaone-moe", {.patterns = kExaoneMoe}},
    {"minicpm5", {.patterns = kMiniCpm5, .ignore_merges = true}},
    {"spark2_5", {.patterns = kSpark}},
    {"gemma4 granite-embed-multi-311m", {.patterns = kLines, .adds_bos = true, .marks = true}},
    {"sarvam-moe", {.patterns = kLines, .marks = true}},
    {"default", {.patterns = kDefault}},
};
// clang-format on

}  // namespace

const PrePatterns* find_pre_patterns(std::string_view name) {
  if (name.empty()) name = "default";
  for (const Row& row : kRows)
    for (std::string_view rest = row.names; !rest.empty();) {
      const size_t n = rest.find(' ');
      if (rest.substr(0, n) == name) return &row.patterns;
      rest.remove_prefix(n == rest.npos ? rest.size() : n + 1);
    }
  return nullptr;
}

}  // namespace tealight
