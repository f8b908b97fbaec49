// Fuzz target: events of AWS Lambda; whatever they hold, the answers are JSON.
#include <cstdint>

#include "src/base/error.h"
#include "src/host/lambda/events.h"

using namespace tealight;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  JsonDoc doc;
  try {
    doc = JsonDoc::parse({reinterpret_cast<const char*>(data), size}, "event");
  } catch (const Error&) {
    return 0;
  }
  const lambda::Event event = lambda::read_event(doc.root());
  Answer answer;
  answer.body = event.body;
  answer.content_type = event.content_type;
  const JsonDoc http = JsonDoc::parse(lambda::http_answer(event, answer), "answer");
  TEALIGHT_CHECK(http["statusCode"].integer("status") == 200);
  TEALIGHT_CHECK(http[event.multi_value ? "multiValueHeaders" : "headers"]["content-type"]);
  std::vector<std::string_view> ids;
  for (const auto& record : event.records) ids.push_back(record.id);
  TEALIGHT_CHECK(JsonDoc::parse(lambda::batch_answer(ids), "answer")["batchItemFailures"].size() == ids.size());
  TEALIGHT_CHECK(event.is_http() || (event.path.empty() && event.body.empty()));
  return 0;
}
