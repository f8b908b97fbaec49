// Options that several commands share: which model, how it is loaded, how it answers.
#pragma once
#include <array>
#include <string>

#include "src/cli/options.h"
#include "src/task/lm.h"
#include "src/task/request.h"

namespace tealight::cli {

inline constexpr Option kModelOptions[] = {
    {"model", "-m", "MODEL", "a .gguf, a .safetensors beside its config.json, or a Hugging Face directory"},
    {"threads", "-t", "N", "threads (default: the CPUs that this process may use)"},
    {"batch", "-b", "N", "prompt tokens evaluated together (default 512)"},
    {"ctx", "-c", "N", "context in tokens (default: the model's, within the memory there is)"},
    {"kv", "", "f16|f32|q8_0|q4_0", "type of the cache (default: f16 for quantized models, else f32)"},
    {"activations", "", "int8|f32", "what quantized weights multiply (default int8)"},
    {"copy-weights", "", "on|off", "after some tokens, copy the weights into large pages, in the fastest layout (default on, with memory to spare)"},
    {"cache", "", "DIR", "keep the states of prompts there, for prompts that begin alike (default: $TEALIGHT_CACHE)"},
    {"cache-size", "", "MIB", "most that they may take (default 1024)"},
};

// Of commands that generate; load_options() reads them too.
inline constexpr Option kDraftOptions[] = {
    {"draft-max", "", "N", "most tokens guessed and checked at a time: the same text, often sooner (default 8; 0: none)"},
    {"model-draft", "-md", "MODEL", "a small model that guesses, of the same vocabulary (default: text that repeats is guessed)"},
};

inline constexpr Option kSamplingOptions[] = {
    {"max-tokens", "-n", "N", "most tokens of an answer; -1: until the model ends it or the context is full"},
    {"temperature", "--temp", "X", "0 is greedy: always the most likely token"},
    {"top-k", "", "N", "keep the N most likely tokens; 0: all"},
    {"top-p", "", "X", "keep the most likely tokens up to this probability; 1: all"},
    {"min-p", "", "X", "keep tokens with this share of the best one's probability; 0: all"},
    {"typical-p", "", "X", "keep the most typical tokens up to this probability; 1: all"},
    {"repeat-penalty", "", "X", "make tokens of the prompt and the answer less likely; 1: off"},
    {"frequency-penalty", "", "X", "the same by their count in the answer, -2 to 2; 0: off"},
    {"presence-penalty", "", "X", "the same once for all in the answer, -2 to 2; 0: off"},
    {"seed", "-s", "N", "of the random numbers (default: another one each time)"},
    {"stop", "", "TEXT", "end the answer before this text"},
    {"min-tokens", "", "N", "do not let the model end the answer before"},
    {"ignore-eos", "", "", "go on after tokens that end an answer"},
};

// Of commands that answer strangers; sandbox_mode() reads it.
inline constexpr Option kSandboxOptions[] = {
    {"sandbox", "", "off|on|require", "give up what serving does not need; require: or do not start (default on)"},
};

// One table from several.
template <size_t... N>
constexpr auto join(const Option (&... tables)[N]) {
  std::array<Option, (N + ...)> all{};
  size_t n = 0;
  const auto add = [&](const auto& table) {
    for (const Option& o : table) all[n++] = o;
  };
  (add(tables), ...);
  return all;
}

// The path of the model: --model, or the first positional argument, which `next` then passes over. Where there is a model without
// being named (default_model()), that argument is the model only if it names a file or folder. Errors: Code::usage.
std::string model_path(const Args& args, const CommandInfo& command, size_t& next);
LoadOptions load_options(const Args& args);

// Sets what the options say over the request's values.
void read_sampling_options(const Args& args, GenerateRequest& request);

// What run and chat use where no option says otherwise; llama.cpp's defaults.
GenerateRequest terminal_defaults();

}  // namespace tealight::cli
