#include "src/task/generate.h"

#include <unistd.h>
#include <time.h>

#include <algorithm>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/task/prefix_cache.h"

namespace tealight {
namespace {

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

std::vector<TokenId> encode_request(Lm& lm, const GenerateRequest& request) {
  const Tokenizer& tokenizer = lm.tokenizer();
  if (!request.prompt_ids.empty()) {
    for (TokenId id : request.prompt_ids)
      if (id < 0 || size_t(id) >= lm.vocab()) fail(Code::request, "prompt: ", id, " is not a token id; there are ", lm.vocab());
    return request.prompt_ids;
  }
  if (!request.chat) {
    const TextPart part{request.prompt, true};
    return encode_prompt(tokenizer, {&part, 1});
  }
  const JsonDoc variables = JsonDoc::parse(template_variables(request, tokenizer), "messages");
  const std::vector<RenderedPart> rendered = lm.chat_template().render_parts(variables.root());
  std::vector<TextPart> parts;
  for (const RenderedPart& p : rendered) parts.push_back({p.text, p.from_template});
  return encode_prompt(tokenizer, parts);
}

namespace {

SamplingOptions seeded(const GenerateRequest& request) {
  SamplingOptions s = request.sampling;
  s.seed = request.seed ? *request.seed : s.temperature > 0 ? random_seed() : 0;
  return s;
}

}  // namespace

// Everything that grows is reserved here: a step allocates nothing.
Generation::Generation(Lm& lm, const GenerateRequest& request, std::span<const TokenId> prompt, Sequence& sequence, TextSink sink,
                       GenerateControl control)
    : lm_(lm), request_(request), prompt_(prompt.begin(), prompt.end()), sequence_(sequence), sink_(std::move(sink)),
      control_(std::move(control)), sampler_(seeded(request), lm.vocab(), request.min_tokens > 0), decoder_(lm.tokenizer()),
      matcher_(request.stop), begin_us_(monotonic_us()) {
  const char* what = request.chat ? "messages" : "prompt";
  const size_t room = sequence.capacity();
  if (prompt.empty()) fail(Code::request, what, ": has no tokens; give a text that is not empty");
  if (prompt.size() > room)
    fail(Code::request, what, ": ", prompt.size(), " tokens are more than the context of ", room,
         " tokens; shorten the text or start with a larger --ctx");
  most_ = room - prompt.size() + 1;  // the last token that is chosen need not be evaluated
  if (request.max_tokens > 0) most_ = std::min(most_, size_t(request.max_tokens));
  sampler_.accept_prompt(prompt);

  given_ = sequence.rewind(common(sequence.ids()));
  if (PrefixCache* cache = lm.prefix_cache()) given_ = std::max(given_, cache->restore(sequence, prompt, given_));
  sequence.rewind(given_);
  result_.prompt_tokens = prompt.size();
  result_.cached_tokens = given_;

  const size_t expected = std::min<size_t>(most_, 1 << 16);
  const size_t logprobs = request.sampling.top_logprobs < 0 ? 0 : 1 + size_t(request.sampling.top_logprobs);
  result_.text.reserve(expected * 16);
  result_.logprobs.reserve(expected * logprobs);
  if (lm.max_drafts() > 0 && most_ > 1 && request.delay_ms == 0) {   // a slow model that a test asks for gives one token at a time
    drafter_.emplace(lm.max_drafts(), prompt.size() + most_, sequence.draft(), lm.draft_cost());
    for (TokenId id : prompt) drafter_->push(id);
  }
  if (most_ > 1) {
    const size_t rows = 1 + (drafter_ ? lm.max_drafts() : 0);
    sequence.reserve(rows);
    if (Sequence* draft = sequence.draft(); draft && drafter_) draft->reserve(rows);
  }
  if (!request.chat) decoder_.push(prompt_.back());  // the answer goes on in the prompt's text: a leading space of it counts
}

// Tokens that a sequence has in common with the prompt, but for the last one: it must be evaluated.
size_t Generation::common(std::span<const TokenId> held) const {
  size_t n = 0;
  while (n < held.size() && n + 1 < prompt_.size() && held[n] == prompt_[n]) n++;
  return n;
}

void Generation::share(const Sequence& other) {
  constexpr size_t kWorth = 16;
  if (!reading() || &other == &sequence_ || common(other.ids()) < given_ + kWorth || !sequence_.share(other, common(other.ids()))) return;
  result_.cached_tokens += sequence_.position() - given_;
  given_ = sequence_.position();
}

std::span<const TokenId> Generation::next(size_t most, size_t sharing) {
  constexpr size_t kPiece = 256, kFirstPiece = 32;
  const size_t left = prompt_.size() - given_;
  size_t n = std::max<size_t>(left, 1);
  // In pieces where somebody may end it in the middle; how long the first one takes is not known yet.
  if (control_.deadline_us) n = std::min(n, us_per_token_ > 0 ? kPiece : kFirstPiece);
  else if (control_.cancelled) n = std::min(n, kPiece);
  n = std::min(n, most);
  drafts_ = 0;
  alone_ = sharing == 1;
  if (control_.cancelled && control_.cancelled()) finish(Finish::cancelled);
  else if (out_of_time(n)) finish(Finish::length);
  if (done_) return {};
  if (left == 0) drafts_ = propose(most - 1, sharing);
  asked_us_ = monotonic_us();
  asked_ = n;
  if (left == 0) return {step_, 1 + drafts_};
  given_ += n;
  return std::span(prompt_).subspan(given_ - n, n);
}

// Guesses into step_: no more than may still be chosen, fit, and can be checked in time, and none after an end token.
size_t Generation::propose(size_t most, size_t sharing) {
  if (!drafter_ || sharing == 0) return 0;
  most = std::min({most, most_ - result_.completion_tokens - 1, sequence_.batch_room() - 1});
  size_t n = 0;
  for (TokenId id : drafter_->propose(most, sharing)) {
    step_[1 + n++] = id;
    if (!request_.ignore_eos && contains(lm_.tokenizer().end_tokens, id)) break;
  }
  return out_of_time(1 + n) ? 0 : n;
}

bool Generation::drop_drafts() {
  if (drafts_ == 0) return false;
  drafts_ = 0;
  drafter_.reset();
  return true;
}

bool Generation::out_of_time(size_t tokens) {
  if (!control_.deadline_us) return false;
  const double pause_us = double(request_.delay_ms) * 1000;
  return double(monotonic_us()) + us_per_token_ * double(tokens) + pause_us > double(control_.deadline_us);
}

void Generation::take(const Logits& logits) {
  const int64_t now = monotonic_us();
  us_per_token_ = double(now - asked_us_) / double(asked_);
  if (given_ < prompt_.size()) return;
  if (!answer_us_) answer_us_ = now;
  else if (drafter_ && alone_) drafter_->timed(drafts_, float(now - asked_us_));
  const size_t before = sequence_.position() - 1 - drafts_;
  result_.drafted_tokens += drafts_;
  for (size_t i = 0;; i++) {
    choose(logits.row(i, rows()));
    const bool right = !done_ && i < drafts_ && step_[1 + i] == step_[0];
    if (right && control_.cancelled && control_.cancelled()) finish(Finish::cancelled);
    if (!right || done_) {
      if (i < drafts_) sequence_.rewind(before + 1 + i);
      return;
    }
    result_.accepted_tokens++;
  }
}

// The next token, into step_[0].
void Generation::choose(const Logits& logits) {
  const Tokenizer& tokenizer = lm_.tokenizer();
  const bool may_end = result_.completion_tokens >= size_t(request_.min_tokens);
  const TokenId id = step_[0] = sampler_.sample(logits, may_end ? std::span<const TokenId>() : tokenizer.end_tokens);
  result_.completion_tokens++;
  result_.logprobs.insert(result_.logprobs.end(), sampler_.logprobs().begin(), sampler_.logprobs().end());
  if (drafter_) drafter_->push(id);
  if (!request_.ignore_eos && contains(tokenizer.end_tokens, id)) return finish(Finish::stop);
  emit(matcher_.push(decoder_.push(id)));
  pause();
  if (matcher_.stopped()) finish(Finish::stop);
  else if (!heard_) finish(Finish::cancelled);
  else if (result_.completion_tokens == most_) finish(Finish::length);
}

// Faults that tests ask for.
void Generation::pause() const {
  if (request_.delay_ms > 0) usleep(useconds_t(request_.delay_ms * 1000));
  if (request_.fail_after > 0 && result_.completion_tokens >= size_t(request_.fail_after))
    fail(Code::internal, "x_fail_after: ", request_.fail_after, " tokens were given");
}

void Generation::emit(std::string_view text) {
  if (text.empty()) return;
  result_.text += text;
  if (sink_ && !sink_(text)) heard_ = false;
}

void Generation::finish(Finish f) {
  if (done_) return;
  done_ = true;
  if (answer_us_ && heard_ && !matcher_.stopped()) emit(matcher_.push(decoder_.finish()));
  if (answer_us_ && heard_ && !matcher_.stopped()) emit(matcher_.finish());
  result_.finish = matcher_.stopped() ? Finish::stop : f;
  const int64_t now = monotonic_us();
  result_.prompt_seconds = double((answer_us_ ? answer_us_ : now) - begin_us_) * 1e-6;
  result_.decode_seconds = answer_us_ ? double(now - answer_us_) * 1e-6 : 0;
}

void Generation::store_prompt() const {
  if (PrefixCache* cache = lm_.prefix_cache()) cache->store(sequence_, prompt_);
}

Sequence& Generator::sequence() {
  if (!sequence_) sequence_ = lm_.start();
  return *sequence_;
}

GenerateResult Generator::generate(const GenerateRequest& request, const TextSink& sink, const GenerateControl& control) {
  return generate(request, encode_request(lm_, request), sink, control);
}

GenerateResult Generator::generate(const GenerateRequest& request, std::span<const TokenId> prompt, const TextSink& sink,
                                   const GenerateControl& control) {
  Generation g(lm_, request, prompt, sequence(), sink, control);
  try {
    while (!g.done()) {
      const std::span<const TokenId> ids = g.next();
      if (ids.empty()) break;
      Logits logits;
      try {
        logits = sequence().eval_last(ids, g.rows(), g.wanted());
      } catch (const Error&) {
        if (!g.drop_drafts()) throw;
        continue;
      }
      g.take(logits);
    }
  } catch (...) {
    sequence().rewind(0);   // nothing of a request that failed is used again
    throw;
  }
  g.store_prompt();
  return std::move(g.result());
}

}  // namespace tealight
