// Brings files that are not in memory there, in the order in which they will be used, while a computation uses them already.
#pragma once
#include <memory>
#include <span>

#include "src/base/mapping.h"

namespace tealight {

// A few threads that read pieces of mapped files into the page cache and map them, first things first. Who touches a piece that is
// not there yet waits for it as for any page: a view never changes, and nothing is copied into private memory. When a read fails,
// the threads end and leave the error to whoever touches that page (see explain_bus_errors()).
class ReadAhead {
 public:
  // `order`: stretches of memory; those that lie in none of `files`, or in one that was in memory when it was mapped, are passed
  // over. No thread is made where nothing is left.
  ReadAhead(std::span<const std::shared_ptr<const Mapping>> files, std::span<const std::span<const std::byte>> order);
  ~ReadAhead();                        // the threads end after the pieces that they are at
  // Puts what is needed now before everything else; does not wait for it.
  void first(std::span<const std::byte> part);
  bool done() const;                   // has all been read, or begun?
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  size_t pieces() const;               // that were to be read

 private:
  struct Work;
  std::shared_ptr<Work> work_;         // the threads' too
};

}  // namespace tealight
