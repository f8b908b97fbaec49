#include "src/host/lines.h"

#include <signal.h>

#include <algorithm>
#include <new>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/host/stdio.h"

namespace tealight {
namespace {

std::string id_of(std::string_view line) {
  try {
    return request_id(JsonDoc::parse(line, "request").root());
  } catch (const Error&) {
    return "";
  }
}

JsonWriter& begin(JsonWriter& w, const std::string& id) {
  w.begin_object();
  if (!id.empty()) w.key("id").raw(id);
  return w;
}

std::string answer_line(Answer answer, std::string_view line) {
  if (answer.content_type.starts_with("application/json") && answer.status < 400) {
    std::replace(answer.body.begin(), answer.body.end(), '\n', ' ');   // between values: within strings they are escaped
    return answer.body + "\n";
  }
  std::string out;
  JsonWriter w(out);
  begin(w, id_of(line)).field("status", answer.status).field("content_type", answer.content_type).field("body", answer.body).end_object();
  return out + "\n";
}

std::string handle(Handler& handler, const LineReader& reader, std::string_view line, int out, bool& open) {
  Call call;
  call.body = line;
  call.content_type = "application/json";
  call.local = reader.is_local();
  call.files = reader.files();
  call.write = [&](std::string_view piece) {
    std::string text;
    JsonWriter w(text);
    begin(w, id_of(line)).field("delta", piece).end_object();
    return open = open && write_all(out, text + "\n");
  };
  try {
    return answer_line(handler.handle(call), line);
  } catch (const Error& e) {
    return error_json(e, id_of(line)) + "\n";
  } catch (const std::bad_alloc&) {
    return error_json(Error(Code::memory, "not enough memory for this request"), id_of(line)) + "\n";
  } catch (const std::exception& e) {
    return error_json(Error(Code::internal, e.what()), id_of(line)) + "\n";
  }
}

}  // namespace

int serve_lines(Handler& handler, int in, int out, SandboxMode sandbox, const std::function<void()>& start_threads) {
  const SignalPipe termination(SIGTERM);
  ::signal(SIGPIPE, SIG_IGN);
  LineReader reader(in, RequestLimits::max_line_bytes, termination.fd());
  enter_sandbox({.receive_files = reader.is_unix_socket()}, sandbox, start_threads);
  for (bool open = true; open && !SignalPipe::came;) {
    std::string_view line;
    const LineReader::Status status = reader.next(line);
    if (status == LineReader::Status::end) break;
    if (status == LineReader::Status::too_long) {
      const Error error(Code::request, cat("the line is longer than ", RequestLimits::max_line_bytes, " bytes"));
      open = write_all(out, error_json(error, "") + "\n");
    } else if (status == LineReader::Status::line && line.find_first_not_of(" \t\r") != line.npos) {
      const std::string answer = handle(handler, reader, line, out, open);
      open = open && write_all(out, answer);
    }
  }
  return 0;
}

}  // namespace tealight
