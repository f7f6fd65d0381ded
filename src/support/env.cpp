#include "support/env.hpp"

#include "support/check.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <strings.h>

namespace dcuda::support {

namespace {

// True if the whole text is one number of type T; no spaces, no locale.
template <typename T>
bool parse(const std::string& text, T& value) {
    const char* end = text.data() + text.size();
    auto [stop, problem] = std::from_chars(text.data(), end, value);
    return problem == std::errc() && stop == end;
}

[[noreturn]] void malformed(const char* name, const std::string& value, const std::string& expected) {
    fail(error_code::invalid_argument, "{}={}: expected {}", name, value, expected);
}

} // namespace

std::optional<std::string> env_string(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
}

std::optional<long> env_integer(const char* name, long min, long max) {
    auto text = env_string(name);
    if (!text) return std::nullopt;
    long value = 0;
    if (!parse(*text, value) || value < min || value > max)
        malformed(name, *text, fmt::format("an integer from {} to {}", min, max));
    return value;
}

std::optional<bool> env_flag(const char* name) {
    auto text = env_string(name);
    if (!text) return std::nullopt;
    for (const char* word : {"1", "true", "yes", "on"})
        if (strcasecmp(text->c_str(), word) == 0) return true;
    for (const char* word : {"0", "false", "no", "off"})
        if (strcasecmp(text->c_str(), word) == 0) return false;
    malformed(name, *text, "1, true, yes, on, 0, false, no or off");
}

std::optional<double> env_seconds(const char* name) {
    auto text = env_string(name);
    if (!text) return std::nullopt;
    double value = 0;
    if (!parse(*text, value) || !std::isfinite(value) || value < 0)
        malformed(name, *text, "a number of seconds, 0 or more");
    return value;
}

} // namespace dcuda::support
