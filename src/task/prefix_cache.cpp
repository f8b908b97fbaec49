#include "src/task/prefix_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/base/fd.h"
#include "src/base/hash.h"
#include "src/base/log.h"

namespace tealight {
namespace {

constexpr char kMagic[8] = {'T', 'E', 'A', 'L', 'K', 'V', '1', '\n'};
constexpr std::string_view kTemporary = "tmp-", kPiecePrefix = "kv-", kWeightsPrefix = "weights-";
constexpr int64_t kStaleSeconds = 3600;                       // a temporary file that old was left by a process that died

// In front of a piece; then the token ids of the whole prefix, then the state.
struct Header {
  char magic[8];
  uint64_t seed;
  uint32_t first, end;
  uint64_t state_bytes, state_hash, ids_hash;
  uint64_t check;                                             // of all above
};
static_assert(sizeof(Header) == 56);
uint64_t check_of(const Header& h) { return hash64({reinterpret_cast<const char*>(&h), offsetof(Header, check)}); }

struct Found {
  std::string name;
  uint64_t bytes;
  timespec time;
};
// The files of a folder whose names begin with `prefix`.
std::vector<Found> list(int dir, std::string_view prefix) {
  std::vector<Found> all;
  const int fd = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* d = fd < 0 ? nullptr : ::fdopendir(fd);
  if (!d) {
    if (fd >= 0) ::close(fd);
    return all;
  }
  while (const dirent* e = ::readdir(d)) {
    struct stat st;
    if (std::string_view(e->d_name).starts_with(prefix) && ::fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
      all.push_back({e->d_name, uint64_t(st.st_size), st.st_mtim});
  }
  ::closedir(d);
  return all;
}

// A file that is there wholly or not at all.
bool write_file(int dir, const std::string& name, std::initializer_list<std::string_view> parts) {
  uint64_t random = 0;
  if (getentropy(&random, sizeof random) != 0) return false;
  const std::string temporary = cat(kTemporary, hex64(random));
  const Fd f(::openat(dir, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!f) return false;
  bool good = true;
  for (std::string_view p : parts) good = good && write_all(f.get(), p);
  good = good && ::renameat(dir, temporary.c_str(), dir, name.c_str()) == 0;
  const int error = errno;
  if (!good) ::unlinkat(dir, temporary.c_str(), 0);
  errno = error;
  return good;
}

std::string_view bytes_of(std::span<const TokenId> ids) { return {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()}; }

}  // namespace

// Positions first .. end - 1 of a sequence that begins with ids [0, end).
struct PrefixCache::Piece {
  size_t first;
  std::span<const TokenId> ids;
  uint64_t hash;                                              // of seed and ids
  uint64_t state_bytes;
  std::string name() const { return cat(kPiecePrefix, hex64(hash)); }
};

void PrefixCache::open(const std::string& dir, uint64_t max_bytes) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) fail(Code::file, dir, ": cannot make the folder: ", std::strerror(errno));
  dir_ = Fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir_) fail(Code::file, dir, ": ", std::strerror(errno));
  max_bytes_ = max_bytes;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  for (const Found& f : list(dir_.get(), kTemporary))
    if (f.time.tv_sec < now.tv_sec - kStaleSeconds) ::unlinkat(dir_.get(), f.name.c_str(), 0);
  seed_ = hash64(cat(lm_.state_fingerprint(), ' ', weights_hash()));
}

// A hash of all weights: two models may differ in a single value. It is remembered for files that have not changed since.
uint64_t PrefixCache::weights_hash() {
  if (const auto stored = lm_.weights_hash()) return *stored;
  std::string identity;
  for (const auto& file : lm_.files()) identity += cat(file->identity(), ' ');
  const std::string name = cat(kWeightsPrefix, hex64(hash64(identity)));
  {
    uint64_t known[2];
    const Fd f(::openat(dir_.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
    if (f && read_all(f.get(), known, sizeof known) && known[1] == hash64({reinterpret_cast<const char*>(known), 8})) return known[0];
  }
  Hasher h;
  for (const auto& file : lm_.files()) h.update(file->data(), file->size());
  uint64_t known[2] = {h.digest(), 0};
  known[1] = hash64({reinterpret_cast<const char*>(known), 8});
  write_file(dir_.get(), name, {{reinterpret_cast<const char*>(known), sizeof known}});
  return known[0];
}

size_t PrefixCache::restore(Sequence& sequence, std::span<const TokenId> prompt, size_t held) {
  const size_t limit = std::min(prompt.size(), sequence.capacity());
  // Of a stored prefix, what counts: the last token of a prompt must be evaluated, as its logits are not stored.
  const auto worth = [&](size_t n) { return std::min(n, prompt.size() - 1); };
  const StateSnapshot* packed = nullptr;
  for (const StateSnapshot& s : lm_.prefixes()) {
    const size_t n = s.ids.size();
    if (n > 0 && n <= limit && std::equal(s.ids.begin(), s.ids.end(), prompt.begin()) && (!packed || n > packed->ids.size())) packed = &s;
  }
  const size_t best = packed ? worth(packed->ids.size()) : 0;

  std::vector<Piece> pieces = dir_ ? find(prompt.first(limit), sequence.tile_bytes()) : std::vector<Piece>();
  while (!pieces.empty() && worth(pieces.back().ids.size()) > std::max(held, best)) {
    uint64_t bytes = 0;
    for (const Piece& p : pieces) bytes += p.state_bytes;
    std::vector<std::byte> state;
    state.resize(size_t(bytes));
    size_t good = 0;
    for (std::byte* to = state.data(); good < pieces.size() && read(pieces[good], to); good++) to += pieces[good].state_bytes;
    if (good == pieces.size()) {
      sequence.restore({pieces.back().ids, state});
      return worth(pieces.back().ids.size());
    }
    pieces.resize(good);                                      // what cannot be read ends the prefix before it
  }
  if (best <= held) return 0;
  sequence.restore(*packed);
  return best;
}

// The pieces that make up the longest stored beginning of a prompt.
std::vector<PrefixCache::Piece> PrefixCache::find(std::span<const TokenId> prompt, uint64_t tile_bytes) const {
  std::vector<Piece> pieces;
  const auto add_if_stored = [&](size_t first, size_t end, uint64_t hash) {
    const Piece p{first, prompt.first(end), hash, tile_bytes * ((end + 15) / 16 - first / 16)};
    if (::faccessat(dir_.get(), p.name().c_str(), F_OK, 0) != 0) return false;
    pieces.push_back(p);
    return true;
  };
  Hasher h;
  h.update(&seed_, sizeof seed_);
  size_t at = 0;
  while (true) {
    // One token after the other, so that the rest of a shorter prompt is found too.
    const size_t end = std::min(at + kPiece, prompt.size());
    std::vector<uint64_t> hashes;
    for (size_t i = at; i < end; i++) {
      h.update(&prompt[i], sizeof(TokenId));
      hashes.push_back(h.digest());
    }
    size_t n = hashes.size();
    while (n > 0 && !add_if_stored(at, at + n, hashes[n - 1])) n--;
    if (n < kPiece) return pieces;
    at += kPiece;
  }
}

bool PrefixCache::read(const Piece& p, std::byte* to) const {
  const Fd f(::openat(dir_.get(), p.name().c_str(), O_RDONLY | O_CLOEXEC));
  Header h;
  if (!f || !read_all(f.get(), &h, sizeof h)) return false;
  std::vector<TokenId> ids(p.ids.size());
  const bool good = std::memcmp(h.magic, kMagic, sizeof kMagic) == 0 && h.check == check_of(h) && h.seed == seed_ && h.first == p.first &&
                    h.end == p.ids.size() && h.state_bytes == p.state_bytes && read_all(f.get(), ids.data(), ids.size() * sizeof(TokenId)) &&
                    std::equal(ids.begin(), ids.end(), p.ids.begin()) && read_all(f.get(), to, size_t(p.state_bytes)) &&
                    hash64({reinterpret_cast<const char*>(to), size_t(p.state_bytes)}) == h.state_hash;
  if (good) ::futimens(f.get(), nullptr);                        // used now: it will be the last to make room
  return good;
}

bool PrefixCache::write(const Piece& p, std::span<const std::byte> state) {
  const std::string_view bytes(reinterpret_cast<const char*>(state.data()), state.size());
  Header h{{}, seed_, uint32_t(p.first), uint32_t(p.ids.size()), state.size(), hash64(bytes), p.hash, 0};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.check = check_of(h);
  return write_file(dir_.get(), p.name(), {{reinterpret_cast<const char*>(&h), sizeof h}, bytes_of(p.ids), bytes});
}

void PrefixCache::store(const Sequence& sequence, std::span<const TokenId> prompt) {
  if (!dir_) return;
  const std::span<const TokenId> held = sequence.ids();
  if (held.size() < prompt.size() || !std::equal(prompt.begin(), prompt.end(), held.begin())) return;   // it ended before the prompt did
  if (sequence.snapshot_bytes(prompt.size()) == 0) return;
  const uint64_t tile = sequence.tile_bytes();
  std::vector<Piece> missing;
  uint64_t bytes = 0;
  Hasher h;
  h.update(&seed_, sizeof seed_);
  for (size_t at = 0; at < prompt.size(); at += kPiece) {
    const size_t end = std::min(at + kPiece, prompt.size());
    h.update(prompt.data() + at, (end - at) * sizeof(TokenId));
    const Piece p{at, prompt.first(end), h.digest(), tile * ((end + 15) / 16 - at / 16)};
    if (::faccessat(dir_.get(), p.name().c_str(), F_OK, 0) == 0) continue;
    bytes += p.state_bytes + sizeof(Header) + p.ids.size_bytes();
    missing.push_back(p);
  }
  if (missing.empty() || bytes > max_bytes_) return;
  make_room(bytes);
  std::vector<std::byte> state;
  for (const Piece& p : missing) {
    state.resize(size_t(p.state_bytes));
    sequence.save(p.first, p.ids.size(), state.data());
    if (write(p, state)) continue;
    if (!std::exchange(warned_, true)) warn("the prefix cache cannot be written: ", std::strerror(errno));
    return;
  }
}

void PrefixCache::make_room(uint64_t bytes) {
  std::vector<Found> all = list(dir_.get(), kPiecePrefix);
  uint64_t used = bytes;
  for (const Found& f : all) used += f.bytes;
  if (used <= max_bytes_) return;
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return a.time.tv_sec != b.time.tv_sec ? a.time.tv_sec < b.time.tv_sec : a.time.tv_nsec < b.time.tv_nsec;
  });
  for (const Found& f : all) {
    if (used <= max_bytes_) return;
    if (::unlinkat(dir_.get(), f.name.c_str(), 0) == 0) used -= f.bytes;
  }
}

}  // namespace tealight
