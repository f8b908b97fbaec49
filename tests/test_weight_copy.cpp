// Weights are copied and the head gets its coarse copy between steps: every step has the bits that it would have without.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <unistd.h>

#include "src/task/generate.h"
#include "src/task/lm.h"
#include "src/tensor/row_search.h"
#include "tests/random_model.h"

using namespace tealight;

namespace {

struct ModelFile {
  std::string path = "/tmp/tealight_random_" + std::to_string(getpid()) + ".gguf";
  explicit ModelFile(Dtype t) { write_random_model(path, t); }
  ~ModelFile() { unlink(path.c_str()); }
};

// The k best of all logits.
std::vector<TokenLogit> best_of(std::span<const float> all, int k) {
  std::vector<TokenLogit> v;
  for (size_t i = 0; i < all.size(); i++) v.push_back({TokenId(i), all[i]});
  std::stable_sort(v.begin(), v.end(), [](auto& a, auto& b) { return a.logit > b.logit; });
  v.resize(size_t(k));
  return v;
}

bool same(std::span<const TokenLogit> a, std::span<const TokenLogit> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (a[i].id != b[i].id || std::memcmp(&a[i].logit, &b[i].logit, 4) != 0) return false;
  return true;
}

}  // namespace

TEST_CASE("weight copy: every step has the same bits, whether all logits are asked for or the best") {
  for (const Dtype type : {Dtype::q8_0, Dtype::q5_1}) {
    const ModelFile file(type);
    for (const int threads : {1, 2}) {
      const auto plain = Lm::load(file.path, {.threads = threads, .copy_weights = false}), copied = Lm::load(file.path, {.threads = threads});
      const auto a = plain->start(500), b = copied->start(500);
      TokenId id = 11;
      int searched = 0;
      for (int step = 0; step < 150; step++) {
        CAPTURE(step);
        const int k = step % 5 == 4 ? 0 : step % 3 == 0 ? 40 : 1;
        const std::span<const float> all = a->eval({&id, 1});
        const Logits l = b->eval_last({&id, 1}, 1, k);
        if (l.all.empty()) REQUIRE(same(l.best, best_of(all, k)));
        else REQUIRE(std::memcmp(l.all.data(), all.data(), all.size_bytes()) == 0);
        searched += l.all.empty();
        id = best_of(all, 1)[0].id;
        if (step == 100) copied->copy_weights_now();
      }
      CHECK(searched > (type == Dtype::q8_0 ? 3 : -1));        // a head of few bits has no coarse copy
    }
  }
}

TEST_CASE("weight copy: several sequences, some with all logits") {
  const ModelFile file(Dtype::q8_0);
  const auto plain = Lm::load(file.path, {.threads = 2, .copy_weights = false}), copied = Lm::load(file.path, {.threads = 2});
  TokenId id = 3;
  const auto warm = copied->start(100);
  for (int i = 0; i < 30; i++) warm->eval_last({&id, 1}, 1, 1);
  copied->copy_weights_now();
  int searched = 0;
  for (const int n : {2, RowSearch::kMaxVectors, RowSearch::kMaxVectors + 1, 33}) {
    for (const bool mixed : {false, true}) {
      std::vector<std::unique_ptr<Sequence>> a, b;
      std::vector<SequenceWork> work;
      std::vector<std::vector<TokenId>> ids;
      for (int i = 0; i < n; i++) {
        a.push_back(plain->start(100)), b.push_back(copied->start(100));
        ids.push_back({TokenId(5 + i), TokenId(900 * i % 16000), 77});
      }
      for (int i = 0; i < n; i++) work.push_back({.sequence = b[size_t(i)].get(), .ids = ids[size_t(i)], .best = mixed && i == 1 ? 0 : 1 + i % 7 * 7});
      copied->eval(work);
      for (int i = 0; i < n; i++) {
        CAPTURE(i);
        REQUIRE(!work[size_t(i)].error);
        const std::span<const float> all = a[size_t(i)]->eval(ids[size_t(i)]);
        const Logits& l = work[size_t(i)].logits;
        if (mixed || n > RowSearch::kMaxVectors) CHECK(!l.all.empty());
        searched += l.all.empty();
        if (l.all.empty()) CHECK(same(l.best, best_of(all, 1 + i % 7 * 7)));
        else CHECK(std::memcmp(l.all.data(), all.data(), all.size_bytes()) == 0);
      }
    }
  }
  CHECK(searched > 0);
}

TEST_CASE("weight copy: answers are the same, greedy and drawn") {
  const ModelFile file(Dtype::q8_0);
  const auto plain = Lm::load(file.path, {.threads = 1, .copy_weights = false}), copied = Lm::load(file.path, {.threads = 1});
  Generator a(*plain), b(*copied);
  for (const double temperature : {0.0, 0.8})
    for (const int top_k : {0, 1, 40, 100}) {
      GenerateRequest q;
      q.prompt_ids = {5, 6, 7, 8};
      q.max_tokens = 60;
      q.sampling.temperature = temperature;
      q.sampling.top_k = top_k;
      q.sampling.top_p = 0.9;
      q.seed = 9;
      CHECK(a.generate(q).text == b.generate(q).text);
      copied->copy_weights_now();
    }
}
