// lambda: the custom runtime of AWS Lambda.
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/lambda/lambda.h"
#include "src/host/stdio.h"

namespace tealight::cli {
namespace {

constexpr CommandInfo kInfo = {"lambda", "[MODEL]", "be the custom runtime of AWS Lambda", "", kModelOptions};

struct LmHandlerStub : Handler {
  std::unique_ptr<Lm> lm;
  Generator generator;
  explicit LmHandlerStub(std::unique_ptr<Lm> l) : lm(std::move(l)), generator(*lm) {}
  Answer handle(const Call& call) override {
    JsonDoc doc = JsonDoc::parse(call.body, "request");
    GenerateRequest request = parse_request(doc.root());
    TextSink sink;
    bool streamed = call.write && request.stream;
    if (streamed) sink = [&](std::string_view t) {
      std::string out = "data: ";
      JsonWriter(out).begin_object().field("text", t).end_object();
      return call.write(out + "\n\n");
    };
    GenerateResult result = generator.generate(request, sink);
    Answer a;
    a.body = answer_json(request, result, *lm);
    if (streamed) a.body = "data: " + a.body + "\n\ndata: [DONE]\n\n";
    return a;
  }
};

int run(const Args& args) {
  lambda::set_up_logs();
  const auto load = [&](bool) -> std::unique_ptr<Handler> {
    size_t next = 0;
    const char* given = ::getenv("TEALIGHT_MODEL");
    const std::string path = given && *given ? std::string(given) : model_path(args, kInfo, next);
    return std::make_unique<LmHandlerStub>(Lm::load(path, load_options(args)));
  };
  return lambda::serve(load, "tealight/" TEALIGHT_VERSION);
}

}  // namespace

const Command lambda_command = {kInfo, run};

}  // namespace tealight::cli
