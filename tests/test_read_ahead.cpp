// Files that are not in the page cache: that they are recognized, read in order, and that what cannot be read is said.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "src/base/fd.h"
#include "src/base/read_ahead.h"

using namespace tealight;

namespace {

constexpr size_t kBytes = (9 << 20) + 12345;

// A file of kBytes that is gone with this; its words say where they are.
struct TestFile {
  std::string path = "read_ahead.XXXXXX";
  Fd fd{mkstemp(path.data())};
  TestFile() {
    std::string s(kBytes, '\0');
    for (size_t i = 0; i + 4 <= s.size(); i += 4) {
      const auto word = uint32_t(i);
      s.replace(i, 4, reinterpret_cast<const char*>(&word), 4);
    }
    REQUIRE(write_all(fd.get(), s));
    REQUIRE(fsync(fd.get()) == 0);
  }
  ~TestFile() { unlink(path.c_str()); }
  // False where the system keeps it in memory (tmpfs, say).
  bool drop() const {
    posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    return Mapping::open(path)->cold();
  }
};

size_t resident_pages(const Mapping& m) {
  std::vector<unsigned char> in((m.size() + 4095) / 4096);
  REQUIRE(mincore(const_cast<std::byte*>(m.data()), m.size(), in.data()) == 0);
  return size_t(std::count_if(in.begin(), in.end(), [](unsigned char c) { return c & 1; }));
}

bool whole(const Mapping& m) {
  for (size_t i = 0; i + 4 <= m.size(); i += 4)
    if (uint32_t word; std::memcpy(&word, m.data() + i, 4), word != uint32_t(i)) return false;
  return true;
}

}  // namespace

TEST_CASE("a file in memory is not cold, and nothing is read") {
  const TestFile f;
  const auto m = Mapping::open(f.path);
  REQUIRE(whole(*m));                          // whoever wrote it may have been slow
  const auto again = Mapping::open(f.path);
  CHECK(!again->cold());
  const std::span<const std::byte> all[] = {again->bytes()};
  CHECK(ReadAhead({&again, 1}, all).pieces() == 0);
}

TEST_CASE("a cold file is read in pieces, each once") {
  const TestFile f;
  if (!f.drop()) return;                       // tmpfs and the like have no cold files
  posix_fadvise(f.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  const auto m = Mapping::open(f.path);
  REQUIRE(m->cold());
  const std::span<const std::byte> b = m->bytes();
  float elsewhere = 0;
  const std::span<const std::byte> order[] = {b.subspan(5 << 20, 4 << 20), b.subspan(8 << 20), {reinterpret_cast<std::byte*>(&elsewhere), 4}, {}, b.subspan(0, 7)};
  const ReadAhead r({&m, 1}, order);
  CHECK(r.pieces() == 4);                      // the third, fourth and fifth 2 MiB, and the first
  CHECK(whole(*m));
}

TEST_CASE("everything arrives without being touched") {
  const TestFile f;
  if (!f.drop()) return;
  posix_fadvise(f.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  const auto m = Mapping::open(f.path);
  const std::span<const std::byte> order[] = {m->bytes()};
  const ReadAhead r({&m, 1}, order);
  for (int i = 0; i < 5000 && resident_pages(*m) < (kBytes + 4095) / 4096; i++) usleep(2000);
  CHECK(resident_pages(*m) == (kBytes + 4095) / 4096);
}

TEST_CASE("the reader ends before its file is read, and the mapping before the reader") {
  const TestFile f;
  for (int i = 0; i < 20; i++) {
    posix_fadvise(f.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    auto m = Mapping::open(f.path);
    const std::span<const std::byte> order[] = {m->bytes()};
    auto r = std::make_unique<ReadAhead>(std::span<const std::shared_ptr<const Mapping>>(&m, 1), order);
    if (i % 2) m = nullptr;
    r = nullptr;
  }
}

TEST_CASE("a file that was cut off meanwhile ends the process with a line that names it") {
  const TestFile f;
  int out[2];
  REQUIRE(pipe(out) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], 2);
    explain_bus_errors();
    const auto m = Mapping::open(f.path);
    if (ftruncate(f.fd.get(), 4096) != 0) _exit(3);
    const volatile auto* last = reinterpret_cast<const volatile char*>(m->data() + kBytes - 1);
    _exit(*last == 'x' ? 4 : 5);
  }
  close(out[1]);
  std::string said;
  char chunk[512];
  for (ssize_t n; (n = read(out[0], chunk, sizeof chunk)) > 0;) said.append(chunk, size_t(n));
  close(out[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(said.find(f.path) != said.npos);
  CHECK(said.find("cannot be read") != said.npos);
}
