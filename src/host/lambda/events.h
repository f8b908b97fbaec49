// Events of AWS Lambda: what each sender's JSON asks for, and the answer in the form that it expects. Pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/host/handler.h"

namespace tealight::lambda {

struct Event {
  enum class Source {
    plain,      // the event is the call's body itself
    http_v2,    // function URL, API Gateway payload 2.0
    http_v1,    // API Gateway payload 1.0 (REST APIs)
    alb,        // Application Load Balancer
    sqs,        // a batch of messages
    warm_up,    // a scheduled event or a ping that keeps the function warm
  };
  Source source = Source::plain;
  bool is_http() const { return source == Source::http_v2 || source == Source::http_v1 || source == Source::alb; }

  // HTTP
  std::string_view method, path, content_type;
  std::string query, body;
  bool bad_body = false;               // said to be Base64, and is not
  bool multi_value = false;            // headers came as lists and must go back so

  // SQS
  struct Record {
    std::string_view id, body;
  };
  std::vector<Record> records;
  bool fifo = false;                   // a queue that keeps its order: what follows a failed record has failed, too
};

// Never fails: what is not recognized is plain. Views point into the document.
Event read_event(Json root);

// The answer to an HTTP event: {"statusCode":200,"headers":{...},"body":"...","isBase64Encoded":false}.
std::string http_answer(const Event& event, const Answer& answer);
// What a streamed answer to an HTTP event begins with: status and headers as JSON, then eight zero bytes.
std::string stream_prelude(int status, std::string_view content_type);
// {"batchItemFailures":[{"itemIdentifier":"..."}]}
std::string batch_answer(const std::vector<std::string_view>& failed);
// {"errorMessage":...,"errorType":...,"stackTrace":[]}
std::string error_body(std::string_view type, std::string_view message);

// The answer that tells an HTTP client about an error.
Answer http_error(const Error& error);
// "Runtime.ModelFile", ...: what the platform reports (Runtime or Function, a dot, letters).
std::string_view error_type(Code code);

}  // namespace tealight::lambda
