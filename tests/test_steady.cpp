// The steady state: after the first token the next ones take no memory from anywhere.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/task/generate.h"
#include "tests/fixtures.h"

// Whoever takes memory comes through one of these.
namespace {
uint64_t g_taken = 0;
}
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* malloc(size_t n) { return g_taken++, __libc_malloc(n); }
void* calloc(size_t n, size_t m) { return g_taken++, __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { return g_taken++, __libc_realloc(p, n); }
void* aligned_alloc(size_t a, size_t n) { return g_taken++, __libc_memalign(a, n); }
void* mmap(void* p, size_t n, int prot, int flags, int fd, off_t at) noexcept {
  g_taken++;
  return reinterpret_cast<void*>(syscall(SYS_mmap, p, n, prot, flags, fd, at));
}
#endif
}

using namespace tealight;

TEST_CASE("steady: a thousand decode steps take no memory") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("a sanitizer's allocator cannot be counted here");
#else
  {
    const uint64_t before = g_taken;
    void* volatile kept = std::malloc(1);            // volatile: else the compiler makes nothing of both
    std::free(kept);
    int* volatile made = new int;
    delete made;
    REQUIRE(g_taken >= before + 2);                  // the counters count
  }
  for (const char* name : {"gguf/llama.Q8_0.gguf", "gguf/llama_k256.Q4_K_M.gguf", "gguf/qwen3_moe.Q4_0.gguf", "gguf/gemma3_text.Q8_0.gguf",
                           "gguf/falcon_new.Q8_0.gguf", "models/llama_bias_tied"})
    for (int threads : {1, 2}) {
      CAPTURE(name);
      CAPTURE(threads);
      auto lm = Lm::load(fixture(name), {.threads = threads});
      auto s = lm->start(1100);
      std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7};
      std::span<const float> l = s->eval(prompt);
      TokenId id = 9;
      for (int i = 0; i < 3; i++) l = s->eval({&id, 1});
      const uint64_t before = g_taken;
      for (int i = 0; i < 1000; i++) {
        l = s->eval({&id, 1});
        id = TokenId(uint32_t(l[0] * 1000) % 300);
      }
      CHECK(g_taken - before == 0);
    }
#endif
}

TEST_CASE("steady: a thousand tokens take no memory after the first, with guesses and without") {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  size_t guessed = 0;
  for (const std::string name : {"gguf/llama.Q8_0.gguf", "gguf/llama_k256.Q4_K_M.gguf", "gguf/qwen3_moe.Q4_0.gguf", "gguf/qwen2_moe.Q8_0.gguf",
                                 "gguf/gemma3_text.Q8_0.gguf", "gguf/falcon_new.Q8_0.gguf"})
    for (int threads : {1, 2})
      for (int drafts : {0, 8, 15}) {
        CAPTURE(name);
        CAPTURE(threads);
        CAPTURE(drafts);
        auto lm = Lm::load(fixture(name), {.threads = threads, .ctx = 1100, .max_drafts = drafts});
        GenerateRequest q;
        q.prompt_ids = {40, 41, 40, 41, 42};
        q.max_tokens = 1000;
        q.ignore_eos = true;
        q.sampling.temperature = 1;
        q.sampling.logit_bias = {{40, 60}, {41, 60}, {42, 57}};   // tokens that take turns by chance: guesses of all numbers, many wrong
        q.seed = 3;
        uint64_t first = 0, last = 0;
        size_t pieces = 0;
        const GenerateResult r = Generator(*lm).generate(q, [&](std::string_view) {
          last = g_taken;
          if (++pieces == 1) first = last;
          return true;
        });
        CHECK(r.completion_tokens == 1000);
        CHECK(pieces > 500);
        CHECK(last - first == 0);
        guessed += r.drafted_tokens;
      }
  CHECK(guessed > 1000);
#endif
}
