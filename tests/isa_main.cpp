// main() of the tests that run once for each instruction set. Exits 77, "skipped", where TEALIGHT_ISA names one that the CPU lacks.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/kernels.h"

int main(int argc, char** argv) {
  const char* error = nullptr;
  if (!tealight::kernels::choose(std::getenv("TEALIGHT_ISA"), &error)) {
    std::puts(error);
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
