// OpenAI's embeddings: vectors of texts, one after the other on the scheduler's thread, so that generations go on between them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/host/http_reply.h"
#include "src/task/scheduler.h"

namespace tealight {

class EmbeddingJob : public std::enable_shared_from_this<EmbeddingJob> {
 public:
  // Errors: Code::request, Code::unsupported, "FIELD: what is wrong".
  EmbeddingJob(Json request, Scheduler& scheduler, std::shared_ptr<HttpReply> reply);
  // False when the queue is full.
  bool submit();

 private:
  struct Input {
    std::string text;
    std::vector<TokenId> ids;          // where they are not empty, instead of the text
  };
  void add(Json input);
  void run(Lm& lm);
  void embed(Lm& lm, const Input& input);

  Scheduler& scheduler_;
  std::shared_ptr<HttpReply> reply_;
  std::vector<Input> inputs_;
  bool base64_ = false;
  int64_t dimensions_ = 0;             // 0: not asked for
  size_t next_ = 0, tokens_ = 0;
  std::string data_;                   // the answer's array so far
};

}  // namespace tealight
