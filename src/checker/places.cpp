// SPDX-License-Identifier: BSD-3-Clause
#include "checker/places.hpp"

#include <array>
#include <cstdio>
#include <dlfcn.h>
#include <link.h>
#include <memory>
#include <string_view>
#include <unistd.h>
#include <unwind.h>

#include <fmt/format.h>

namespace dcuda::detail::check {

namespace {

constexpr unsigned most_frames = 20; // of which the innermost are the library's

struct stack {
    std::array<const void*, most_frames> addresses;
    unsigned count = 0;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* data) {
    auto& all = *static_cast<stack*>(data);
    const auto next = _Unwind_GetIP(context);
    if (next == 0 || all.count == most_frames) return _URC_END_OF_STACK;
    all.addresses[all.count++] = reinterpret_cast<const void*>(next);
    return _URC_NO_REASON;
}

// Files of the library and of the compiler, which say nothing to who looks for a mistake in his own.
bool is_library(std::string_view file) {
    for (const std::string_view part :
         {"/include/dcuda", "/src/cpu/", "/src/checker/", "/usr/include/", "/usr/lib/", "/c++/"})
        if (file.find(part) != file.npos) return true;
    return file.substr(0, 2) == "??";
}

// What the command prints, line by line; nothing if it cannot be run.
std::vector<std::string> lines_of(const std::string& command) {
    std::vector<std::string> lines;
    const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
    if (!output) return lines;
    std::array<char, 4096> text;
    while (std::fgets(text.data(), text.size(), output.get())) {
        lines.emplace_back(text.data());
        while (!lines.back().empty() && lines.back().back() == '\n') lines.back().pop_back();
    }
    return lines;
}

// That of binutils does not know all inlined functions of clang.
constexpr const char* symbolizer = "$(command -v llvm-addr2line || echo addr2line)";

std::string quoted(std::string_view text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

} // namespace

frame places::resolve(const void* return_address) {
    // A return address may belong to the next line already.
    const auto at = reinterpret_cast<std::uintptr_t>(return_address) - 1;
    Dl_info info{};
    link_map* map = nullptr;
    if (dladdr1(reinterpret_cast<const void*>(at), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
        map == nullptr)
        return {at, none};
    const auto [found, is_new] = modules_.try_emplace(info.dli_fbase, none);
    if (is_new) {
        std::array<char, sizeof(module_name::path)> path{};
        std::string_view name = map->l_name;
        if (name.empty()) { // the program itself
            const auto length = readlink("/proc/self/exe", path.data(), path.size() - 1);
            name = {path.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
        }
        std::uint32_t& count = m_.head().modules;
        for (std::uint32_t i = 0; i < count && found->second == none; ++i)
            if (name == m_.module(i).path) found->second = i;
        if (found->second == none && count < most_modules && name.size() < sizeof(module_name::path)) {
            found->second = count++;
            module_name& made = m_.module(found->second);
            made = {};
            name.copy(made.path, sizeof made.path - 1);
        }
    }
    return {at - map->l_addr, found->second};
}

std::uint32_t places::intern(const void* const* addresses, unsigned count) {
    std::uint32_t& used = m_.head().sites;
    if (used == most_sites) return none;
    site& made = m_.site(used);
    made.count = 0;
    for (unsigned i = 0; i < count && made.count < site_frames; ++i) made.frames[made.count++] = resolve(addresses[i]);
    return used++;
}

std::uint32_t places::here() {
    stack all;
    _Unwind_Backtrace(add_frame, &all);
    // This function and who calls it are the library's.
    const unsigned skipped = std::min(all.count, 2u), count = all.count - skipped;
    std::vector<const void*> key(all.addresses.begin() + skipped, all.addresses.begin() + skipped + count);
    const auto [found, is_new] = stacks_.try_emplace(std::move(key), none);
    if (is_new) found->second = intern(all.addresses.data() + skipped, count);
    return found->second;
}

std::uint32_t places::of(const void* return_address) {
    const auto [found, is_new] = single_.try_emplace(return_address, none);
    if (is_new) found->second = intern(&return_address, 1);
    return found->second;
}

std::string places::name(std::uint32_t number) {
    if (number == none) return "an unknown place";
    const auto [found, is_new] = names_.try_emplace(number);
    std::string& result = found->second;
    if (!is_new) return result;
    const site& place = m_.site(number);
    for (unsigned first = 0; first < place.count && result.empty();) {
        const std::uint32_t module = place.frames[first].module;
        if (module == none) {
            ++first;
            continue;
        }
        const char* const path = m_.module(module).path;
        std::string addresses;
        unsigned last = first;
        for (; last < place.count && place.frames[last].module == module; ++last)
            addresses += fmt::format(" {:#x}", place.frames[last].offset);
        // Inlined functions from the inside out, then their callers.
        for (const std::string& line :
             lines_of(fmt::format("{} -i -e {}{} 2>/dev/null", symbolizer, quoted(path), addresses))) {
            if (is_library(line) || line.find(":?") != line.npos || line.find(":0") == line.size() - 2) continue;
            const std::string_view whole = std::string_view(line).substr(0, line.find(" (discriminator"));
            result = whole.substr(whole.rfind('/') + 1);
            break;
        }
        first = last;
    }
    if (result.empty() && place.count != 0 && place.frames[0].module != none) {
        const std::string_view path = m_.module(place.frames[0].module).path;
        result = fmt::format("{}+{:#x}", path.substr(path.rfind('/') + 1), place.frames[0].offset);
    }
    if (result.empty()) result = "an unknown place";
    return result;
}

} // namespace dcuda::detail::check
