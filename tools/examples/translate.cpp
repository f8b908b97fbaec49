// A function: {"text":"..."} in, {"french":"..."} out.
#include <tealight/function.h>

int main(int argc, char** argv) {
  return tealight::function(argc, argv, [](tealight::Request& request, tealight::Model& model) {
    const std::string prompt = "English: " + request.text("text") + "\nFrench:";
    const std::string french = model.complete(prompt, {.max_tokens = int64_t(request.number("max_tokens", 60)), .stop = {"\n"}});
    return tealight::Reply::json("{\"french\":" + tealight::json_string(french) + "}");
  });
}
