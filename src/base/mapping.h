// A file as one read-only address range.
#pragma once
#include <csignal>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tealight {

// Owns the range; views into it live as long as a shared_ptr to it does. The pages are private and never written.
class Mapping {
 public:
  // Maps a whole regular file. Errors: Code::file with the path and the system's reason. An empty file maps to an empty range.
  static std::shared_ptr<const Mapping> open(const std::string& path);
  // The same from a descriptor, which stays the caller's; `path` is for messages.
  static std::shared_ptr<const Mapping> of_fd(int fd, const std::string& path);
  // A part of another one, which it keeps alive. The caller has checked that it lies inside.
  static std::shared_ptr<const Mapping> part(std::shared_ptr<const Mapping> whole, size_t offset, size_t bytes, std::string name);
  // Takes over bytes that are already in memory (tests, fuzzers, embedded sections).
  static std::shared_ptr<const Mapping> from_bytes(std::string bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // A hash of device, file number, size and times of change: another one when the file has changed. 0 for bytes in memory.
  uint64_t identity() const { return identity_; }
  // Was a part of the file not in memory when it was mapped? Found by looking at a few pages; false where the system does not tell.
  bool cold() const { return cold_; }

 private:
  friend void explain_bus_errors();
  Mapping() = default;
  static void on_bus_error(int signal, siginfo_t* info, void*);
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  uint64_t identity_ = 0;
  bool mapped_ = false, cold_ = false;
  std::string path_, owned_;
  std::shared_ptr<const Mapping> whole_;
  Mapping* next_ = nullptr;            // in the list of those that are mapped
};

// A page of a mapped file that cannot be read (the file was cut off, its device failed) ends the process with SIGBUS. From now on it
// does so with exit code 1 and a line that names the file.
void explain_bus_errors();

// Gives the pages of the program itself back that have been touched so far: most are needed by nothing but the start. Those that are
// needed again come back from the page cache.
void release_startup_pages();

// Whole text of a small file (configs, templates). Errors: Code::file; also when it is larger than max_bytes.
std::string read_text_file(const std::string& path, size_t max_bytes);
bool file_exists(const std::string& path);
bool is_directory(const std::string& path);

}  // namespace tealight
