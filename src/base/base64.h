// Base64 (RFC 4648, section 4).
#pragma once
#include <string>
#include <string_view>

namespace tealight {

std::string base64(std::string_view bytes);
// False for anything but whole groups of four with the right padding.
bool base64_decode(std::string_view text, std::string& out);

}  // namespace tealight
