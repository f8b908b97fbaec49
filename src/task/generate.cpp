#include "src/task/generate.h"

#include <unistd.h>
#include <time.h>

#include <algorithm>

#include "src/base/error.h"

namespace tealight {
namespace {

double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

uint64_t random_seed() {
  uint64_t seed;
  if (getentropy(&seed, sizeof seed) == 0) return seed;
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return uint64_t(t.tv_sec) * 1'000'000'007u + uint64_t(t.tv_nsec);
}

// What a chat template sees (transformers: apply_chat_template), as a JSON object.
std::string template_variables(const GenerateRequest& request, const Tokenizer& tokenizer) {
  std::string text;
  JsonWriter w(text);
  w.begin_object().key("messages").raw(request.messages);
  w.key("tools").raw(request.tools.empty() ? "null" : request.tools);
  w.key("documents").null().field("add_generation_prompt", true);
  const auto token = [&](std::string_view name, std::optional<TokenId> id) {
    if (id) w.field(name, tokenizer.piece(*id));
  };
  token("bos_token", tokenizer.bos);
  token("eos_token", tokenizer.eos);
  token("pad_token", tokenizer.pad);
  token("unk_token", tokenizer.unk);
  if (!request.template_variables.empty()) {
    const JsonDoc more = JsonDoc::parse(request.template_variables, "chat_template_kwargs");
    for (auto [key, value] : more.root().members()) w.field(key, value);
  }
  w.end_object();
  return text;
}

bool contains(std::span<const TokenId> ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) : stops_(stops) { held_.reserve(4096); }

std::string_view StopMatcher::push(std::string_view text) {
  held_.erase(0, given_);
  given_ = 0;
  if (stopped_) return {};
  for (char c : text) {
    held_ += c;
    size_t longest = 0;
    for (const std::string& s : stops_)
      if (s.size() > longest && held_.ends_with(s)) longest = s.size();
    if (longest) {
      stopped_ = true;
      given_ = held_.size() - longest;
      return std::string_view(held_).substr(0, given_);
    }
  }
  size_t keep = 0;  // the longest end of the text that begins a stop string
  for (const std::string& s : stops_)
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; n--)
      if (held_.ends_with(std::string_view(s).substr(0, n))) keep = n;
  given_ = held_.size() - keep;
  return std::string_view(held_).substr(0, given_);
}

std::string_view StopMatcher::finish() {
  held_.erase(0, given_);
  given_ = held_.size();
  return stopped_ ? std::string_view() : std::string_view(held_);
}

std::string_view finish_name(Finish f) {
  return f == Finish::stop ? "stop" : f == Finish::length ? "length" : "cancelled";
}

Sequence& Generator::sequence() {
  if (!sequence_) sequence_ = lm_.start();
  return *sequence_;
}

size_t Generator::capacity() { return sequence().capacity(); }

std::vector<TokenId> Generator::encode(const GenerateRequest& request) {
  if (!request.prompt_ids.empty()) {
    for (TokenId id : request.prompt_ids)
      if (id < 0 || size_t(id) >= lm_.vocab()) fail(Code::request, "prompt: ", id, " is not a token id; there are ", lm_.vocab());
    return request.prompt_ids;
  }
  const Tokenizer& tokenizer = lm_.tokenizer();
  if (!request.chat) {
    const TextPart part{request.prompt, true};
    return encode_prompt(tokenizer, {&part, 1});
  }
  const JsonDoc variables = JsonDoc::parse(template_variables(request, tokenizer), "messages");
  const std::vector<RenderedPart> rendered = lm_.chat_template().render_parts(variables.root());
  std::vector<TextPart> parts;
  for (const RenderedPart& p : rendered) parts.push_back({p.text, p.from_template});
  return encode_prompt(tokenizer, parts);
}

GenerateResult Generator::generate(const GenerateRequest& request, const TextSink& sink, const volatile std::sig_atomic_t* cancel) {
  return generate(request, encode(request), sink, cancel);
}

GenerateResult Generator::generate(const GenerateRequest& request, std::span<const TokenId> prompt, const TextSink& sink,
                                   const volatile std::sig_atomic_t* cancel) {
  const size_t room = capacity();
  if (prompt.empty()) fail(Code::request, request.chat ? "messages" : "prompt", ": has no tokens; give a text that is not empty");
  if (prompt.size() > room)
    fail(Code::request, request.chat ? "messages" : "prompt", ": ", prompt.size(), " tokens are more than the context of ", room,
         " tokens; shorten the text or start with a larger --ctx");
  size_t most = room - prompt.size() + 1;  // the last token that is chosen need not be evaluated
  if (request.max_tokens > 0) most = std::min(most, size_t(request.max_tokens));
  SamplingOptions sampling = request.sampling;
  sampling.seed = request.seed ? *request.seed : sampling.temperature > 0 ? random_seed() : 0;
  Sampler sampler(sampling, lm_.vocab(), request.min_tokens > 0);
  sampler.accept_prompt(prompt);

  GenerateResult result;
  result.prompt_tokens = prompt.size();
  const double begin = seconds();
  const std::span<const float> logits = eval_prompt(prompt, result, cancel);
  const double middle = seconds();
  if (logits.empty()) result.finish = Finish::cancelled;
  else decode(request, logits, most, sampler, result, sink, cancel);
  valid_ = true;
  result.prompt_seconds = middle - begin;
  result.decode_seconds = seconds() - middle;
  return result;
}

// Leaves what the sequence and the prompt have in common, evaluates the rest. Empty when cancelled.
std::span<const float> Generator::eval_prompt(std::span<const TokenId> prompt, GenerateResult& result,
                                              const volatile std::sig_atomic_t* cancel) {
  if (!valid_) ids_.clear();
  valid_ = false;  // until the request has ended without an error
  size_t common = 0;
  while (common < ids_.size() && common + 1 < prompt.size() && ids_[common] == prompt[common]) common++;
  ids_.resize(common);
  sequence().rewind(common);
  result.cached_tokens = common;
  // In one call where nobody can cancel: the sequence splits it into batches itself.
  const size_t batch = cancel ? 512 : prompt.size();
  std::span<const float> logits;
  while (ids_.size() < prompt.size()) {
    if (cancel && *cancel) return {};
    const std::span<const TokenId> next = prompt.subspan(ids_.size(), std::min(batch, prompt.size() - ids_.size()));
    logits = sequence().eval(next);
    ids_.insert(ids_.end(), next.begin(), next.end());
  }
  return logits;
}

// Chooses up to `most` tokens. Everything that grows is reserved before the first one.
void Generator::decode(const GenerateRequest& request, std::span<const float> logits, size_t most, Sampler& sampler, GenerateResult& result,
                       const TextSink& sink, const volatile std::sig_atomic_t* cancel) {
  const Tokenizer& tokenizer = lm_.tokenizer();
  const size_t logprobs = request.sampling.top_logprobs < 0 ? 0 : 1 + size_t(request.sampling.top_logprobs);
  const size_t expected = std::min<size_t>(most, 1 << 16);
  result.text.reserve(expected * 16);
  result.logprobs.reserve(expected * logprobs);
  ids_.reserve(ids_.size() + expected);
  StreamDecoder decoder(tokenizer);
  if (!request.chat) decoder.push(ids_.back());  // the answer goes on in the prompt's text: a leading space of it counts
  StopMatcher matcher(request.stop);
  bool heard = true;
  const auto emit = [&](std::string_view text) {
    if (text.empty()) return;
    result.text += text;
    if (sink && !sink(text)) heard = false;
  };

  result.finish = Finish::length;
  while (true) {
    if (cancel && *cancel) {
      result.finish = Finish::cancelled;
      break;
    }
    const bool may_end = result.completion_tokens >= size_t(request.min_tokens);
    const TokenId id = sampler.sample(logits, may_end ? std::span<const TokenId>() : tokenizer.end_tokens);
    result.completion_tokens++;
    result.logprobs.insert(result.logprobs.end(), sampler.logprobs().begin(), sampler.logprobs().end());
    if (!request.ignore_eos && contains(tokenizer.end_tokens, id)) {
      result.finish = Finish::stop;
      break;
    }
    emit(matcher.push(decoder.push(id)));
    if (matcher.stopped()) result.finish = Finish::stop;
    else if (!heard) result.finish = Finish::cancelled;
    if (result.finish != Finish::length || result.completion_tokens == most) break;
    logits = sequence().eval({&id, 1});
    ids_.push_back(id);
  }
  if (heard && !matcher.stopped()) emit(matcher.push(decoder.finish()));
  if (heard && !matcher.stopped()) emit(matcher.finish());
  if (matcher.stopped()) result.finish = Finish::stop;
}

}  // namespace tealight
