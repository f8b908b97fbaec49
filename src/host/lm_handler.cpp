#include "src/host/lm_handler.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/host/stdio.h"

namespace tealight {

Answer LmHandler::handle(const Call& call) {
  const JsonDoc doc = [&] {
    try {
      return JsonDoc::parse(call.body, "request");
    } catch (const Error& e) {
      fail(Error(e.code == Code::format ? Code::request : e.code, e.message));
    }
  }();
  const GenerateRequest request = parse_request(doc.root());
  for (const std::string& name : request.unknown) warn("unknown field ", quoted(name), " is ignored");
  GenerateControl control;
  control.cancelled = call.gone;
  control.deadline_us = call.deadline_us;
  if (!request.stream || !call.write) return {.body = answer_json(request, generator_.generate(request, {}, control), lm_)};
  const GenerateResult result = generator_.generate(request, [&](std::string_view text) {
    std::string event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":";
    json_quote(event, text);
    return call.write(event + "}}]}\n\n");
  }, control);
  return {.content_type = "text/event-stream", .body = cat("data: ", answer_json(request, result, lm_), "\n\ndata: [DONE]\n\n")};
}

}  // namespace tealight
