// The C interface: exceptions become codes and messages, nothing else happens here.
#include "include/tealight.h"

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/host/stdio.h"
#include "src/task/generate.h"

using namespace tealight;

struct tealight_model {
  std::unique_ptr<Lm> lm;
  std::unique_ptr<Generator> generator;
  std::string answer;
  std::vector<float> embedding;
};

namespace {

thread_local std::string message;

tealight_status status_of(Code code) {
  switch (code) {
    case Code::usage: return TEALIGHT_USAGE;
    case Code::file: return TEALIGHT_FILE;
    case Code::format: return TEALIGHT_FORMAT;
    case Code::unsupported: return TEALIGHT_UNSUPPORTED;
    case Code::model: return TEALIGHT_MODEL;
    case Code::tokenizer: return TEALIGHT_TOKENIZER;
    case Code::template_: return TEALIGHT_TEMPLATE;
    case Code::request: return TEALIGHT_REQUEST;
    case Code::memory: return TEALIGHT_MEMORY;
    default: return TEALIGHT_INTERNAL;
  }
}

tealight_status failed(tealight_status status, const char* why) noexcept {
  try {
    message = why;
  } catch (...) {
    message.clear();                   // no memory for the message either
  }
  return status;
}

template <class F>
tealight_status guarded(F f) noexcept {
  try {
    f();
    return TEALIGHT_OK;
  } catch (const Error& e) {
    return failed(status_of(e.code), e.what());
  } catch (const std::bad_alloc&) {
    return failed(TEALIGHT_MEMORY, "not enough memory");
  } catch (const std::exception& e) {
    return failed(TEALIGHT_INTERNAL, e.what());
  }
}

void need(bool given, const char* what) {
  if (!given) fail(Code::usage, what, ": is NULL");
}

JsonDoc parse_json(std::string_view request) {
  try {
    return JsonDoc::parse(request, "request");
  } catch (const Error& e) {
    fail(Error(e.code == Code::format ? Code::request : e.code, e.message));
  }
}

LoadOptions load_options(const tealight_options* given) {
  LoadOptions o;
  if (!given) return o;
  if (given->size != sizeof(tealight_options))
    fail(Code::usage, "options: size is ", given->size, "; expected sizeof(tealight_options), ", sizeof(tealight_options));
  if (given->threads < 0 || given->threads > 1024) fail(Code::usage, "options: threads is ", given->threads, "; expected 0 to 1024");
  if (given->context < 0 || given->batch < 0) fail(Code::usage, "options: context and batch are not negative");
  o.threads = given->threads;
  o.ctx = given->context;
  if (given->batch) o.batch = given->batch;
  return o;
}

}  // namespace

extern "C" {

int tealight_abi(void) { return TEALIGHT_ABI; }

const char* tealight_version(void) { return TEALIGHT_VERSION; }

const char* tealight_message(void) { return message.c_str(); }

tealight_status tealight_load(const char* path, const tealight_options* options, tealight_model** model) {
  if (model) *model = nullptr;
  return guarded([&] {
    need(path, "path");
    need(model, "model");
    auto m = std::make_unique<tealight_model>();
    m->lm = Lm::load(path, load_options(options));
    m->generator = std::make_unique<Generator>(*m->lm);
    *model = m.release();
  });
}

tealight_status tealight_generate(tealight_model* model, const char* request, size_t request_bytes, tealight_sink sink, void* context,
                                  const char** answer, size_t* answer_bytes) {
  return guarded([&] {
    need(model, "model");
    need(request, "request");
    const JsonDoc doc = parse_json({request, request_bytes});
    const JsonDoc whole = with_defaults(model->lm->default_fields(), doc.root());
    const GenerateRequest q = parse_request(whole.root());
    TextSink pieces;
    if (sink) pieces = [&](std::string_view text) { return sink(context, std::string(text).c_str(), text.size()) == 0; };
    model->answer = answer_json(q, model->generator->generate(q, pieces), *model->lm);
    if (answer) *answer = model->answer.c_str();
    if (answer_bytes) *answer_bytes = model->answer.size();
  });
}

tealight_status tealight_embed(tealight_model* model, const char* text, size_t text_bytes, const float** values, size_t* count) {
  return guarded([&] {
    need(model, "model");
    need(text || !text_bytes, "text");
    need(values, "values");
    need(count, "count");
    model->embedding = model->lm->embed(model->lm->tokenizer().encode({text ? text : "", text_bytes}, {}));
    *values = model->embedding.data();
    *count = model->embedding.size();
  });
}

void tealight_free(tealight_model* model) { delete model; }

}  // extern "C"
