// SPDX-License-Identifier: BSD-3-Clause
// How a rank finds what it keeps near: entries with keys in shared memory.
#pragma once

#include "dcuda/detail/exec/lead_warp.hpp"

namespace dcuda::detail {

// Where the keys of entries that are near are, by a hash of the key. No two of them have the same slot: if one factor
// does not part all keys, another does. So one load tells the entry.
inline constexpr unsigned hint_entry = 0xff; // the bits of a hint that are its entry's number
template <class Hint, unsigned Bits>
struct near_hints {
    static constexpr unsigned slots = 1 << Bits;
    std::uint32_t factor; // odd
    Hint at[slots];
    DCUDA_DEVICE unsigned slot(std::uint32_t hash) const { return slot(hash, factor); }
    DCUDA_DEVICE static unsigned slot(std::uint32_t hash, std::uint32_t factor) { return hash * factor >> (32 - Bits); }
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

// Odd factors to be tried; one in 7 parts 16 keys in 64 slots, one in 13 parts 26 keys in 128. Small ones first, which
// part keys that follow each other at once; but they part no hashes that are close to each other.
inline constexpr unsigned hint_factors = 256;
DCUDA_DEVICE std::uint32_t hint_factor(unsigned number) {
    return (2 * number + 1) * (number < hint_factors / 2 ? 1u : 0x9E3779B1u);
}

// A set of slots, in registers.
template <unsigned Slots>
class slot_set {
    static_assert(Slots % 64 == 0);

public:
    // Whether it was not there yet.
    DCUDA_DEVICE bool add(unsigned slot) {
        std::uint64_t present = 0;
        DCUDA_UNROLL
        for (unsigned word = 0; word < Slots / 64; ++word) {
            const std::uint64_t bit = std::uint64_t{word == slot / 64} << slot % 64;
            present |= taken_[word] & bit;
            taken_[word] |= bit;
        }
        return present == 0;
    }

private:
    std::uint64_t taken_[Slots / 64] = {};
};

// The entries' hints change, so that none has the slot of another, if that is possible. hint_at(entry) is the
// entry's hint; entries without a key have the key `none`. All threads of the group.
template <unsigned Size, class Group, class Hints, class Key, class KeyOf, class HintAt>
DCUDA_DEVICE void part_hints(const Group& group, Hints& hints, Key none, const KeyOf& key_of, const HintAt& hint_at) {
    std::uint32_t found = hint_factors;
    for (unsigned first = 0; first < hint_factors && found == hint_factors; first += group.count) {
        const unsigned candidate = first + group.index;
        slot_set<Hints::slots> taken;
        bool parts = candidate < hint_factors;
        DCUDA_NO_UNROLL
        for (unsigned entry = 0; entry < Size && parts; ++entry)
            if (key_of(entry) != none) parts = taken.add(hints.slot(hash_of(key_of(entry)), hint_factor(candidate)));
        const unsigned hits = vote(group, parts);
        if (hits != 0) found = first + lowest(hits);
    }
    sync(group);
    if (group.leads() && found != hint_factors) {
        hints.factor = hint_factor(found);
        DCUDA_NO_UNROLL
        for (unsigned entry = 0; entry < Size; ++entry)
            if (key_of(entry) != none) hints.at[hints.slot(hash_of(key_of(entry)))] = hint_at(entry);
    }
    sync(group);
}

// The entry `place` has a key now: its hint says so. As part_hints(). All threads of the group.
template <unsigned Size, class Group, class Hints, class Key, class KeyOf, class HintAt>
DCUDA_DEVICE void write_hint(const Group& group, Hints& hints, unsigned place, Key none, const KeyOf& key_of,
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
