// SPDX-License-Identifier: BSD-3-Clause
// How a rank finds what it keeps near: entries with keys in shared memory.
#pragma once

#include "dcuda/detail/exec/lead_warp.hpp"

namespace dcuda::detail {

// Where the keys of entries that are near are, by a hash of the key. No two of them have the same slot: if one factor
// does not part all keys, another does. So one load tells the entry.
inline constexpr unsigned hint_bits = 6, hint_slots = 1 << hint_bits;
inline constexpr unsigned hint_factors = 256; // to be tried: of 16 keys every sixth or so parts them
inline constexpr unsigned hint_entry = 0xff;  // the bits of a hint that are its entry's number
template <class Hint>
struct near_hints {
    std::uint32_t factor; // odd
    Hint at[hint_slots];
    DCUDA_DEVICE unsigned slot(std::uint32_t hash) const { return slot(hash, factor); }
    DCUDA_DEVICE static unsigned slot(std::uint32_t hash, std::uint32_t factor) {
        return hash * factor >> (32 - hint_bits);
    }
};
DCUDA_DEVICE std::uint32_t hash_of(std::uint32_t key) { return key * 0x9E3779B1u; }
DCUDA_DEVICE std::uint32_t hash_of(std::uint64_t key) {
    return hash_of(static_cast<std::uint32_t>(key)) ^ static_cast<std::uint32_t>(key >> 32) * 0x85EBCA6Bu;
}

// Which of `Size` entries has this key, or `Size`; key_of(entry) is an entry's key. All threads of the group.
template <unsigned Size, class Group, class Key, class KeyOf>
DCUDA_DEVICE unsigned find_key(const Group& group, Key key, const KeyOf& key_of) {
    static_assert(Size <= 32);
    for (unsigned first = 0; first < Size; first += group.count) {
        const unsigned entry = first + group.index;
        const unsigned hits = vote(group, entry < Size && key_of(entry) == key);
        if (hits != 0) return first + lowest(hits);
    }
    return Size;
}

// The entries' hints change, so that none has the slot of another, if that is possible. hint_at(entry) is the
// entry's hint; entries without a key have the key `none`. All threads of the group.
template <unsigned Size, class Group, class Hint, class Key, class KeyOf, class HintAt>
DCUDA_DEVICE void part_hints(const Group& group, near_hints<Hint>& hints, Key none, const KeyOf& key_of,
                             const HintAt& hint_at) {
    std::uint32_t found = hint_factors;
    for (unsigned first = 0; first < hint_factors && found == hint_factors; first += group.count) {
        const unsigned candidate = first + group.index;
        std::uint64_t taken = 0;
        bool parts = candidate < hint_factors;
        DCUDA_NO_UNROLL
        for (unsigned entry = 0; entry < Size && parts; ++entry) {
            if (key_of(entry) == none) continue;
            const std::uint64_t slot = std::uint64_t{1} << hints.slot(hash_of(key_of(entry)), 2 * candidate + 1);
            parts = (taken & slot) == 0;
            taken |= slot;
        }
        const unsigned hits = vote(group, parts);
        if (hits != 0) found = first + lowest(hits);
    }
    sync(group);
    if (group.leads() && found != hint_factors) {
        hints.factor = 2 * found + 1;
        DCUDA_NO_UNROLL
        for (unsigned entry = 0; entry < Size; ++entry)
            if (key_of(entry) != none) hints.at[hints.slot(hash_of(key_of(entry)))] = hint_at(entry);
    }
    sync(group);
}

// The entry `place` has a key now: its hint says so. As part_hints(). All threads of the group.
template <unsigned Size, class Group, class Hint, class Key, class KeyOf, class HintAt>
DCUDA_DEVICE void write_hint(const Group& group, near_hints<Hint>& hints, unsigned place, Key none, const KeyOf& key_of,
                             const HintAt& hint_at) {
    const unsigned slot = hints.slot(hash_of(key_of(place)));
    const Key other = key_of(hints.at[slot] & hint_entry);
    sync(group);
    if (group.leads()) hints.at[slot] = hint_at(place);
    sync(group);
    if (other != none && other != key_of(place) && hints.slot(hash_of(other)) == slot)
        part_hints<Size>(group, hints, none, key_of, hint_at);
}

} // namespace dcuda::detail
