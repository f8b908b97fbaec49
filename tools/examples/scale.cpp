// A function over shared memory: the tensor "x" times "by", written into the client's output (docs/shared-memory.md).
#include <tealight/function.h>

int main(int argc, char** argv) {
  return tealight::function(argc, argv, [](tealight::Request& request, tealight::Model&) {
    const tealight::TensorView x = request.tensor("x"), y = request.output(x.element, x.shape);
    if (x.element != tealight::Element::f32 || !y) return tealight::Reply::error(400, "x must be f32, and there must be an output");
    const float by = float(request.number("by"));
    for (size_t i = 0; i < x.as<float>().size(); i++) y.as<float>()[i] = by * x.as<float>()[i];
    return tealight::Reply::json("{}");
  });
}
