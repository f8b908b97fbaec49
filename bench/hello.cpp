// The yardstick of start-up: the least C++ program with a vector and a string, by the same compiler and flags.
#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  words.push_back("hello");
  std::puts(words.back().c_str());
}
