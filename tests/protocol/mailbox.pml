/* The mailbox protocol (docs/design/mailbox.md, include/dcuda/detail/ops/mailbox.hpp, mailbox_send.hpp) for spin. check_model.py runs it in
 * several configurations, and with rules left out, which must fail.
 *
 * Ranks run all programs of so many operations, at all speeds. What a rank stores is in flight until it is visible, in
 * any order, but for stores of one rank to one place. Only a fence waits for it. A rank that has not acquired may
 * still read what was there before.
 *
 * Settings:
 *   RANKS at most 3; PER_DEVICE
 *   CONNECTIONS             who puts to whom: bit source * RANKS + target
 *   QUEUES             of a mailbox; of these NEAR are looked at in every wait (without it all), the others when a
 *                     message is announced
 *   HEADERS, RING     of a queue: how many headers, how many payload packets
 *   MODULUS, START    of positions and sequence numbers: where they wrap around, where they start
 *   CREDITS           where the two positions in a word of credit wrap around
 *   OPERATIONS        of a program, of these kinds (0 or 1 each): PUTS with notification, DIRECT puts without, NOTIFY,
 *                     FLUSH. MASKS 1: puts to one place of the window, 2: to two, alone or together
 *   WAITS             1: a rank that has ended its program waits for all notifications, before the last barrier
 *   BARRIERS          1: the ranks cross the barrier of their device somewhere in the program. All end with the world's
 *   EVICT             1: a rank keeps one connection near, the others in its table
 */
#define PAIRS (RANKS * RANKS)
#define DEVICES ((RANKS + PER_DEVICE - 1) / PER_DEVICE)
#define none 255

/* Arithmetic of positions, which wrap around. */
#define distance(a, b) (((a) + 16 * MODULUS - (b)) % MODULUS)
#define not_before(a, b) (distance(a, b) < MODULUS / 2)

#ifndef NEAR
#define NEAR QUEUES
#endif
#define is_far(number) ((number) >= NEAR)

#define pair(s, t) ((s) * RANKS + (t))
#define place(s, t, p) (pair(s, t) * 2 + (p))
#define queue_of(t, l) ((t) * QUEUES + (l))
/* The slots of both rings of a queue: headers, then payload. */
#define SLOTS (HEADERS + RING)
#define header_slot(where, position) ((where) * SLOTS + (position) % HEADERS)
#define payload_slot(where, position) ((where) * SLOTS + HEADERS + (position) % RING)
#define device_of(r) ((r) / PER_DEVICE)
#define reach(s, t) (device_of(s) != device_of(t)) /* 0: device, 1: system */
#define has_connection(s, t) (CONNECTIONS >> pair(s, t) & 1)
#define max(a, b) ((a) > (b) -> (a) : (b))
/* Of payload for these places: bit 0, bit 1. */
#define packets(mask) (((mask) & 1) + ((mask) >> 1 & 1))

/* --- Memory ------------------------------------------------------------------------------------------------------- */

/* Messages: the number of the packet in a slot, plus 1, as stored and as visible; what it says. */
byte stored[RANKS * QUEUES * SLOTS];
byte visible[RANKS * QUEUES * SLOTS];
byte says[RANKS * QUEUES * SLOTS]; /* header: mask, or 4: connect, | 8: releases, | 64: quiet; payload: the value */
byte queues_claimed[RANKS];
byte writer[RANKS * QUEUES]; /* source plus 1: for the model's own use */
byte credit_stored[PAIRS];  /* [source, target]: what has been taken, of headers and of payload, in one word */
byte credit[PAIRS];
byte payload_credit_stored[PAIRS];
byte payload_credit[PAIRS];
byte counter_stored[PAIRS]; /* notifications that are no messages, [source, target]: a tag per source */
byte counter[PAIRS];
bit requested[RANKS];       /* of a target: a source waits for credit */
#if NEAR < QUEUES
byte announced_stored[RANKS]; /* of a target: messages in queues that are not near */
byte announced[RANKS];
byte far_taken[RANKS];        /* its own count of them */
#endif
#if WAITS
bit finished[RANKS];
#endif
/* Two places in each target's window for each source. Values count the source's puts. */
byte window[PAIRS * 2];
byte direct_store[PAIRS * 2]; /* of the source, in flight */
byte placing[PAIRS * 2];      /* of the target, in flight */
byte known[PAIRS * 2];        /* the oldest value that the target can still read */
byte in_flight[RANKS * 2];    /* stores of a rank, by reach */
byte placing_now[RANKS];

#define fence(me, r) (in_flight[(me) * 2] == 0 && ((r) == 0 || in_flight[(me) * 2 + 1] == 0) && placing_now[me] == 0)

/* --- Ranks -------------------------------------------------------------------------------------------------------- */

byte sent[PAIRS];     /* positions of headers, if they do not say payload */
byte payload_sent[PAIRS];
byte freed[PAIRS];
byte payload_freed[PAIRS];
byte placed[PAIRS];   /* payload up to here is in the target's window */
byte queue[PAIRS];     /* number + 1; 0: not asked for; none: there was none */
bit direct[PAIRS];
byte near_connection[RANKS];
byte unreleased[RANKS]; /* bit by reach */
byte told[RANKS * 2];   /* unread messages as the last barrier of a device, of the world, has counted */

byte received[RANKS * QUEUES];
byte payload_received[RANKS * QUEUES];
byte credited[RANKS * QUEUES];
byte payload_credited[RANKS * QUEUES];
byte source_of[RANKS * QUEUES]; /* plus 1; 0: no connect yet */

/* What must hold. */
byte puts[PAIRS];               /* of a source: the last value */
byte last[PAIRS * 2];           /* value put there */
byte issued[PAIRS];             /* notifications */
byte consumed[PAIRS];
byte counted[PAIRS];            /* of these, by the counter */
byte owed[PAIRS * OPERATIONS];  /* both places' values at the time of a notification */

byte arrived[DEVICES + 1]; /* barriers: of devices, of the world */
byte arrived_unread[(DEVICES + 1) * 2]; /* in two sets in turn */
byte unread_seen[RANKS * (DEVICES + 1) * 2];
byte epoch[RANKS * (DEVICES + 1)];
byte before[PAIRS * 4]; /* values put before a barrier, [source, target, of a device or the world, place] */

inline acquire(s, me) {
    known[place(s, me, 0)] = max(known[place(s, me, 0)], window[place(s, me, 0)]);
    known[place(s, me, 1)] = max(known[place(s, me, 1)], window[place(s, me, 1)])
}

/* A packet leaves. What was in its slot must have been taken: all before position `taken` of a ring of `slots` are. */
inline store_packet(s, t, where, number, taken, slots, content) {
    at = where;
    assert(stored[at] == visible[at]);
    assert((taken) + (slots) > (number));
    stored[at] = (number) + 1;
    says[at] = content;
    in_flight[(s) * 2 + reach(s, t)]++
}

/* The announcement is relaxed: no fence waits for it, and it comes before or after its message. */
#if NEAR < QUEUES && !defined(FAR_IS_NOT_ANNOUNCED)
#ifdef ANNOUNCES_CONNECTION_ONLY
#define is_announced_now(s, t) (sent[pair(s, t)] == START + 1)
#else
#define is_announced_now(s, t) true
#endif
inline announce(s, t) {
    if
    :: is_far(queue[pair(s, t)] - 1) && is_announced_now(s, t) -> announced_stored[t]++
    :: else
    fi
}
#else
inline announce(s, t) { skip }
#endif

inline store_header(s, t, content) {
    store_packet(s, t, header_slot(queue_of(t, queue[pair(s, t)] - 1), sent[pair(s, t)]), sent[pair(s, t)],
                 received[queue_of(t, queue[pair(s, t)] - 1)], HEADERS, content);
    sent[pair(s, t)]++;
    announce(s, t)
}

/* Of the last put, to place p. */
inline store_payload(s, t, p) {
    store_packet(s, t, payload_slot(queue_of(t, queue[pair(s, t)] - 1), payload_sent[pair(s, t)]),
                 payload_sent[pair(s, t)], payload_received[queue_of(t, queue[pair(s, t)] - 1)], RING, puts[pair(s, t)]);
    last[place(s, t, p)] = puts[pair(s, t)];
    payload_sent[pair(s, t)]++
}

#ifdef SEQUENCES_OF_A_RING
#define SEQUENCES HEADERS
#else
#define SEQUENCES MODULUS
#endif
#ifdef PAYLOAD_SEQUENCES_OF_A_RING
#define PAYLOAD_SEQUENCES RING
#else
#define PAYLOAD_SEQUENCES MODULUS
#endif
#define is_there(slot, position, sequences) (visible[slot] % (sequences) == ((position) + 1) % (sequences))
#define header_is_there(where, position) is_there(header_slot(where, position), position, SEQUENCES)
#define payload_is_there(where, position) is_there(payload_slot(where, position), position, PAYLOAD_SEQUENCES)

inline check_packet(slot, position) { assert(visible[slot] == (position) + 1) }

/* Of the batch that is being taken: the queue, its source, what its messages say, which one is in turn, and where that
 * one's packet for place p is. */
#define here queue_of(me, l)
#define from (source_of[here] - 1)
#define header(number) says[header_slot(here, received[here] + (number))]
#ifdef BATCH_IN_ANY_ORDER
#define in_turn (batch - 1 - done)
#else
#define in_turn done
#endif
#define part(p) (payload_received[here] + skipped + ((p) & header(in_turn)))

inline begin_message() {
    rest = header(in_turn) & 3;
    skipped = 0;
    number = 0;
    do /* the header does not say where its payload is */
    :: number < in_turn -> skipped = skipped + packets(header(number)); number++
    :: else -> break
    od;
    number = 0
}

/* When all payload of a message is placed, the next one that has some is in turn. */
inline next_message() {
    do
    :: rest == 0 && done + 1 < batch ->
        done++;
        begin_message()
    :: else -> break
    od
}

/* Places the packet for place p. What lies there has been acquired, or is older in program order: of two puts the later
 * wins. */
inline place_payload() {
    check_packet(payload_slot(here, part(p)), part(p));
    at = place(from, me, p);
    value = says[payload_slot(here, part(p))];
    assert(known[at] >= window[at]);
    assert(placing[at] == 0 || placing[at] < value);
    placing_now[me] = placing_now[me] + (placing[at] == 0);
    placing[at] = value;
    known[at] = max(known[at], value);
    rest = rest & ~(1 << p);
    next_message();
    at = 0; value = 0; p = 0
}

/* The program consumes a notification as soon as it has come: what was put before it is there. */
inline consume(s) {
    assert(consumed[pair(s, me)] < issued[pair(s, me)]);
    assert(known[place(s, me, 0)] >= owed[pair(s, me) * OPERATIONS + consumed[pair(s, me)]] % 16);
    assert(known[place(s, me, 1)] >= owed[pair(s, me) * OPERATIONS + consumed[pair(s, me)]] / 16);
    owed[pair(s, me) * OPERATIONS + consumed[pair(s, me)]] = 0;
    consumed[pair(s, me)]++
}

/* Queues are learnt of in the order of their numbers. Who looks for messages waits for sources that have claimed a number
 * and not told yet where the queue is. */
#define is_told(number) ((number) >= queues_claimed[me] || writer[queue_of(me, number)] != 0)
#ifdef UNTOLD_QUEUE_HIDES_OTHERS
#define all_told true
#define is_hidden(number) (!is_told(0))
#else
#define all_told (is_told(0) && is_told(QUEUES - 1))
#define is_hidden(number) false
#endif
#define has_message(number) \
    ((number) < queues_claimed[me] && !is_hidden(number) && \
     header_is_there(queue_of(me, number), received[queue_of(me, number)]))
/* Far queues are looked at when more has been announced than taken; and wherever all messages are taken: before a counter
 * counts, for a source that has asked, and in waits for other things than notifications. */
#if NEAR < QUEUES
#define more_announced (announced[me] != far_taken[me] && (announced[me] + 256 - far_taken[me]) % 256 < 128)
#define sees(number) (!is_far(number) || more_announced)
#define looks_at(number) (sees(number) || takes_all || seen_source != none || requested[me])
#else
#define sees(number) true
#define looks_at(number) true
#endif

#if defined(NO_ACQUIRE) || defined(BATCH_ACQUIRES_LAST)
#define asked 0
#elif defined(BATCH_ACQUIRES_FIRST_ONLY)
#define asked 1
#else
#define asked batch
#endif
/* Once, if any message of the batch releases. */
inline acquire_batch(headers) {
    do
    :: number < headers && (header(number) & 8) == 0 -> number++
    :: number < headers && (header(number) & 8) != 0 -> acquire(from, me); break
    :: else -> break
    od;
    number = 0
}

/* A batch: any number of messages that have arrived at the head of any queue. */
inline take_batch() {
    atomic {
        if
        :: has_message(0) && looks_at(0) -> l = 0
#if QUEUES > 1
        :: has_message(1) && looks_at(1) -> l = 1
#endif
        fi;
        do
        :: batch < HEADERS && header_is_there(here, received[here] + batch) ->
            check_packet(header_slot(here, received[here] + batch), received[here] + batch);
            batch++
        :: batch > 0 -> break
        od;
        d_step {
            if
            :: header(0) & 4 -> source_of[here] = (header(0) >> 4) + 1
            :: else
            fi;
            assert(source_of[here] != 0);
#ifdef CREDIT_BEFORE_PLACING
            do
            :: number < batch -> rest = rest + packets(header(number)); number++
            :: else -> break
            od;
            store_credit(here, received[here] + batch, payload_received[here] + rest);
            number = 0;
#endif
            begin_message();
            next_message();
            acquire_batch(asked) /* before anything is placed */
        }
    }
    do
    :: atomic {
        if
        :: (rest & 1) && payload_is_there(here, part(0)) -> p = 0
        :: (rest & 2) && payload_is_there(here, part(1)) -> p = 1
        fi;
        d_step { place_payload() } }
    :: d_step { rest == 0 ->
#ifdef BATCH_ACQUIRES_LAST
        acquire_batch(batch);
#endif
        /* All packets of the batch are taken: most of their content is no part of the state any more. */
        do
        :: number < batch ->
            if
            :: header(number) & (4 + 64)
            :: else -> consume(from)
            fi;
            rest = packets(header(number));
            header(number) = header(number) & 3; /* the source may still look at it */
            number++;
            do
            :: rest > 0 ->
                says[payload_slot(here, payload_received[here])] = 0;
                payload_received[here]++;
                rest--
            :: else -> break
            od
        :: else -> break
        od;
        received[here] = received[here] + batch;
#if NEAR < QUEUES
#ifndef NEAR_COUNTS_AS_FAR
        if
        :: is_far(l) -> far_taken[me] = far_taken[me] + batch
        :: else
        fi;
#else
        far_taken[me] = far_taken[me] + batch;
#endif
#endif
        number = 0; batch = 0; done = 0; skipped = 0; l = 0 };
        break
    od
}

#define no_messages (all_told && !has_message(0) && !has_message(QUEUES - 1))
#ifdef BARRIER_TAKES_WHAT_IS_ANNOUNCED
#define none_left (all_told && !has_message(0) && !(has_message(QUEUES - 1) && sees(QUEUES - 1)))
#else
#define none_left no_messages
#endif
#if defined(COUNTS_BEFORE_MESSAGES)
#define may_count true
#elif defined(COUNTS_BEFORE_FAR_MESSAGES)
#define may_count (all_told && (is_far(0) || !has_message(0)))
#else
#define may_count no_messages
#endif
/* A counter has changed. Its source may have sent messages before: those are taken first. */
inline see_counter(s) {
    d_step { (s) < RANKS && seen_source == none && counter[pair(s, me)] > counted[pair(s, me)] ->
        acquire(s, me);
        seen_source = s;
        seen_value = counter[pair(s, me)] }
}
inline count_notifications() {
    d_step { seen_source != none && may_count ->
        do
        :: counted[pair(seen_source, me)] < seen_value -> consume(seen_source); counted[pair(seen_source, me)]++
        :: else -> break
        od;
        seen_source = none; seen_value = 0 }
}

/* Of headers and of payload, unless a source has asked. */
#ifdef NO_ANSWERS
#define is_asked false
#else
#define is_asked requested[me]
#endif
#define owes_much(where) \
    (2 * (received[where] - credited[where]) > HEADERS || 2 * (payload_received[where] - payload_credited[where]) > RING)
#ifdef NO_CREDIT_RELEASE
#define released_placing(me) true
#else
#define released_placing(me) (placing_now[me] == 0)
#endif

#ifdef CREDITS_OF_A_RING
#define credit_modulus HEADERS
#else
#define credit_modulus CREDITS
#endif
/* Both positions at once. */
inline store_credit(where, headers, payload) {
    credited[where] = headers;
    payload_credited[where] = payload;
    credit_stored[pair(source_of[where] - 1, me)] = (headers) % credit_modulus;
    payload_credit_stored[pair(source_of[where] - 1, me)] = (payload) % CREDITS
}

inline give_credit(number) {
    d_step {
        source_of[queue_of(me, number)] != 0 && released_placing(me) &&
        received[queue_of(me, number)] != credited[queue_of(me, number)] &&
        (is_asked || owes_much(queue_of(me, number))) ->
        store_credit(queue_of(me, number), received[queue_of(me, number)], payload_received[queue_of(me, number)])
    }
}
/* Everybody who asked has been told what has been taken. What comes later needs another request. */
#define has_told(number) \
    ((number) >= queues_claimed[me] || received[queue_of(me, number)] == credited[queue_of(me, number)])
inline end_request() {
    d_step { requested[me] && no_messages && has_told(0) && has_told(QUEUES - 1) -> requested[me] = 0 }
}

/* One look, at any queue. A rank does it whenever it waits, and whenever the program likes. */
#if QUEUES == 1
#define LOOK :: take_batch() :: give_credit(0) :: end_request()
#else
#define LOOK :: take_batch() :: give_credit(0) :: give_credit(1) :: end_request()
#endif
#ifdef NO_DRAIN
#define LOOK_MEANWHILE
#else
#define LOOK_MEANWHILE LOOK
#endif

/* What an operation does: a mask of places to put to, with a notification unless it is more than this. */
#define only_put 4
#define only_flush 8
/* Full positions, from those in the word of credit and one's own. */
#define of_credit(own, word, modulus) ((own) - ((own) + (modulus) - (word)) % (modulus))

inline read_credit() {
    freed[pair(me, t)] = of_credit(sent[pair(me, t)], credit[pair(me, t)], credit_modulus);
    payload_freed[pair(me, t)] = of_credit(payload_sent[pair(me, t)], payload_credit[pair(me, t)], CREDITS);
    if
    :: !not_before(placed[pair(me, t)], payload_freed[pair(me, t)]) -> placed[pair(me, t)] = payload_freed[pair(me, t)]
    :: else
    fi
}
#define is_delivered (of_credit(payload_sent[pair(me, t)], payload_credit[pair(me, t)], CREDITS) == payload_sent[pair(me, t)])

/* Waits until all payload that went to t is in its window, and asks t for that, again and again: a request may come
 * before the last messages do. */
inline await_delivery() {
    takes_all = 1;
    do
    :: d_step { placed[pair(me, t)] == payload_sent[pair(me, t)] || is_delivered ->
        read_credit(); asked_once = 0; takes_all = 0 };
        break
#ifdef ASKS_ONCE
    :: d_step { !asked_once -> asked_once = 1; requested[t] = 1 }
#else
    :: d_step { !requested[t] && placed[pair(me, t)] != payload_sent[pair(me, t)] && !is_delivered -> requested[t] = 1 }
#endif
    LOOK_MEANWHILE
    od
}

inline release_puts() {
#ifndef NO_FENCE
    if
    :: atomic { (unreleased[me] & (1 << reach(me, t))) == 0 -> skip }
    :: atomic { (unreleased[me] & (1 << reach(me, t))) != 0 && fence(me, reach(me, t)) ->
                unreleased[me] = (reach(me, t) -> 0 : unreleased[me] & ~1) }
    fi
#else
    skip
#endif
}

#ifdef NO_CREDIT_CHECK
#define header_fits true
#else
#define header_fits (distance(sent[pair(me, t)] + 1, freed[pair(me, t)]) <= HEADERS)
#endif
#ifdef NO_PAYLOAD_CHECK
#define payload_fits true
#else
#define payload_fits (distance(payload_sent[pair(me, t)] + packets(does), payload_freed[pair(me, t)]) <= RING)
#endif

#define has_queue (queue[pair(me, t)] != none)
/* Whether a header fits, and payload for this operation. */
inline find_room() {
    d_step {
        if
        :: has_queue && !(header_fits && payload_fits) -> read_credit()
        :: else
        fi
    }
}
#define goes_as_message (has_queue && header_fits && payload_fits)

/* There is room for it. */
inline send_message(mask, quiet) {
    release_puts();
    d_step { /* in flight together: the order in which they leave is no matter */
        store_header(me, t, (mask) + 8 * direct[pair(me, t)] + 64 * (quiet));
        if
        :: (mask) != 0 -> puts[pair(me, t)]++
        :: else
        fi;
        if
        :: (mask) & 1 -> store_payload(me, t, 0)
        :: else
        fi;
        if
        :: (mask) & 2 -> store_payload(me, t, 1)
        :: else
        fi;
        /* count_as_sent */
        direct[pair(me, t)] = 0;
        if
        :: !(quiet) -> owe()
        :: else
        fi;
        at = 0
    }
}

/* A notification has been issued. */
inline owe() {
    owed[pair(me, t) * OPERATIONS + issued[pair(me, t)]] = last[place(me, t, 0)] + 16 * last[place(me, t, 1)];
    issued[pair(me, t)]++
}

/* The connection to t, near. */
inline find_connection() {
#if EVICT
    if
    :: atomic { near_connection[me] != t ->
        near_connection[me] = t;
#ifdef CONNECTION_FORGETS_POSITION
        payload_sent[pair(me, t)] = START;
#endif
#ifdef CONNECTION_FORGETS_PUTS
        direct[pair(me, t)] = 0;
#endif
#ifdef CONNECTION_FORGETS_MESSAGES
        placed[pair(me, t)] = payload_sent[pair(me, t)];
#else
        placed[pair(me, t)] = payload_sent[pair(me, t)] - RING; /* as far back as can be */
#endif
        read_credit() }
    :: else
    fi;
#endif
    if
    :: queue[pair(me, t)] == 0 ->
#ifdef TICKETS_NOT_ATOMIC
        value = queues_claimed[t];
#endif
        d_step {
#ifndef TICKETS_NOT_ATOMIC
            value = queues_claimed[t];
#endif
            queues_claimed[t] = value + 1;
#if QUEUES > 1
        }
        d_step { /* the source may be held up before it tells where the queue is */
#endif
            if
            :: value < QUEUES ->
                queue[pair(me, t)] = value + 1;
                writer[queue_of(t, value)] = me + 1;
                store_header(me, t, 4 + 16 * me)
            :: else -> queue[pair(me, t)] = none
            fi;
            value = 0; at = 0
        }
    :: else
    fi
}

/* A put that finds no room goes directly. The message after it releases, after a fence, as after any directly put. */
#ifdef DIRECT_PUT_WITHOUT_RELEASING
#define direct_releases !has_queue
#else
#define direct_releases 1
#endif
#ifdef DIRECT_PUT_WITHOUT_FENCE
#define direct_is_fenced !has_queue
#else
#define direct_is_fenced 1
#endif

/* Whether payload under way to t, as this rank's own headers say, is for a place of the mask. */
inline find_overlap(mask) {
    d_step {
        overlaps = 0;
        if
        :: has_queue && placed[pair(me, t)] != payload_sent[pair(me, t)] ->
            read_credit();
            number = 0;
            do
            :: number < sent[pair(me, t)] - freed[pair(me, t)] && placed[pair(me, t)] != payload_sent[pair(me, t)] ->
                at = header_slot(queue_of(t, queue[pair(me, t)] - 1), freed[pair(me, t)] + number);
                overlaps = overlaps | ((says[at] & 4) == 0 && (says[at] & (mask)) != 0);
                number++
            :: else -> break
            od
        :: else
        fi;
#ifdef NO_CROSS_WAIT
        overlaps = 0;
#endif
        number = 0; at = 0
    }
}

/* To the places of the mask, with all other payload to these places taken. */
inline put_directly(mask) {
    d_step {
        puts[pair(me, t)]++;
        number = 0;
        do
        :: number < 2 ->
            if
            :: (mask) & (1 << number) ->
                at = place(me, t, number);
                last[at] = puts[pair(me, t)];
                in_flight[me * 2 + reach(me, t)] = in_flight[me * 2 + reach(me, t)] + (direct_store[at] == 0);
                direct_store[at] = puts[pair(me, t)]
            :: else
            fi;
            number++
        :: else -> break
        od;
        direct[pair(me, t)] = direct[pair(me, t)] | direct_releases;
        unreleased[me] = unreleased[me] | (direct_is_fenced << reach(me, t));
        at = 0; number = 0
    }
}

/* Without a queue, or where the queue is full. What comes by message after it releases it. */
inline add_to_counter() {
    d_step {
#ifndef NO_COUNTER_RELEASE
        fence(me, reach(me, t)) ->
#endif
        counter_stored[pair(me, t)]++;
        in_flight[me * 2 + reach(me, t)]++;
        direct[pair(me, t)] = 1;
        unreleased[me] = unreleased[me] | (1 << reach(me, t));
        owe()
    }
}

/* All that this rank has put is in place on return: for everybody, so also for a rank that it then tells so. */
inline flush() {
    d_step { fence(me, 1) -> unreleased[me] = 0 }
    t = 0;
    do
    :: t < RANKS && has_connection(me, t) ->
#ifndef FLUSH_FORGETS_MESSAGES
        await_delivery();
#endif
        assert(window[place(me, t, 0)] >= last[place(me, t, 0)]);
        assert(window[place(me, t, 1)] >= last[place(me, t, 1)]);
        t++
    :: t < RANKS && !has_connection(me, t) -> t++
    :: else -> break
    od
}

#ifdef NO_MESSAGES_AFTER_BARRIER
#define messages_count 0
#else
#define messages_count 1
#endif
/* b: the number of a device, or DEVICES for the world. The barrier's own words are taken for granted: whoever leaves it
 * has acquired all arrivals. */
#define is_in(r, b) ((b) == DEVICES || device_of(r) == (b))
#define members(b) ((b) == DEVICES -> RANKS : ((b) + 1 < DEVICES -> PER_DEVICE : RANKS - (b) * PER_DEVICE))
/* A device's barrier has done nothing for other devices. */
#ifdef DEVICE_BARRIER_COUNTS_ALL_MESSAGES
#define counts_for(r, b) true
#else
#define counts_for is_in
#endif
#ifdef DEVICE_BARRIER_FORGETS_MESSAGES
#define is_settled(r, b) true
#else
#define is_settled is_in
#endif
#ifdef DEVICE_BARRIER_FORGETS_PUTS
#define puts_to_keep(b) 0
#else
#define puts_to_keep(b) ((b) == DEVICES -> 0 : 2)
#endif
#ifdef DEVICE_BARRIER_COUNTS_ALL_MESSAGES
#define told_in(b) told[me]
#else
#define told_in(b) told[me * 2 + ((b) == DEVICES)]
#endif
/* Only configurations with BARRIERS count and have a second meeting: in the others everything ends after the first, and
 * the ranks just take their messages then. It would double the number of states. */
#if defined(NO_SECOND_MEETING) || !BARRIERS
#define meets_again 0
#else
#define meets_again more
#endif

#define turn_of(b) ((b) * 2 + epoch[me * (DEVICES + 1) + b] % 2)
#define seen_by(me, b) unread_seen[me * (DEVICES + 1) * 2 + turn_of(b)]
#define is_full(b) (arrived[b] >= epoch[me * (DEVICES + 1) + b] * members(b))

/* Tells by how much more messages this rank has sent than taken since it told so last. What it has sent is no
 * matter any more after the barrier. */
inline arrive() {
    value = 0; number = 0;
    do
    :: number < RANKS ->
        if
        :: counts_for(number, b) -> value = value + sent[pair(me, number)] - START
        :: else
        fi;
        if
        :: is_settled(number, b) && (!EVICT || near_connection[me] == number) -> placed[pair(me, number)] = payload_sent[pair(me, number)]
        :: else
        fi;
        number++
    :: else -> break
    od;
    number = 0;
    do
    :: number < QUEUES ->
        if
        :: source_of[queue_of(me, number)] != 0 && counts_for(source_of[queue_of(me, number)] - 1, b) ->
            value = value - (received[queue_of(me, number)] - START)
        :: else
        fi;
        number++
    :: else -> break
    od;
    epoch[me * (DEVICES + 1) + b]++;
#if BARRIERS
    arrived_unread[turn_of(b)] = arrived_unread[turn_of(b)] + value - told_in(b);
    told_in(b) = value;
#endif
    arrived[b]++;
    unreleased[me] = unreleased[me] & puts_to_keep(b);
    value = 0; number = 0;
    waits = 1
}

/* A rank arrives with a release as wide as what it has written reaches. */
#ifdef BARRIER_RELEASES_DEVICE_ONLY
#define barrier_reach(b) 0
#else
#define barrier_reach(b) ((b) == DEVICES)
#endif

inline cross_barrier() {
    d_step {
        fence(me, barrier_reach(b)) ->
        value = (b) == DEVICES;
        number = 0;
        do
        :: number < RANKS ->
            before[pair(me, number) * 4 + value * 2] = last[place(me, number, 0)];
            before[pair(me, number) * 4 + value * 2 + 1] = last[place(me, number, 1)];
            number++
        :: else -> break
        od;
        settled = 0;
        takes_all = 1;
        arrive()
    }
    do
    :: d_step { waits && is_full(b) ->
        more = messages_count && !settled && (!BARRIERS || arrived_unread[turn_of(b)] != seen_by(me, b));
#if BARRIERS
        seen_by(me, b) = arrived_unread[turn_of(b)];
#endif
        number = 0;
        do
        :: number < RANKS ->
            if
            :: is_in(number, b) -> acquire(number, me)
            :: else
            fi;
            number++
        :: else -> break
        od;
        number = 0; waits = 0 }
    :: d_step { !waits && meets_again && none_left && fence(me, barrier_reach(b)) ->
        more = 0; settled = 1;
        arrive() }
    :: d_step { !waits && !meets_again && !(more && !none_left) ->
        more = 0;
        value = (b) == DEVICES;
        number = 0;
        do
        :: number < RANKS ->
            if
            :: is_in(number, b) ->
                assert(known[place(number, me, 0)] >= before[pair(number, me) * 4 + value * 2]);
                assert(known[place(number, me, 1)] >= before[pair(number, me) * 4 + value * 2 + 1]);
#if BARRIERS
                /* And what this rank has put has arrived there. */
                assert(window[place(me, number, 0)] >= before[pair(me, number) * 4 + value * 2]);
                assert(window[place(me, number, 1)] >= before[pair(me, number) * 4 + value * 2 + 1])
#endif
            :: else
            fi;
            number++
        :: else -> break
        od;
        takes_all = 0; value = 0; number = 0 };
        break
    LOOK
    od
}

/* What is in the counter may not have been looked at. */
#define all_came(s) \
    ((s) >= RANKS || consumed[pair(s, me)] + counter[pair(s, me)] - counted[pair(s, me)] == issued[pair(s, me)])

#if WAITS
#define has_all(s) ((s) >= RANKS || (finished[s] && consumed[pair(s, me)] == issued[pair(s, me)]))
inline await_all() {
    finished[me] = 1;
    do
    :: atomic { has_all(0) && has_all(1) && has_all(2) -> break }
    :: see_counter(0)
    :: see_counter(1)
    :: see_counter(2)
    :: count_notifications()
    LOOK
    od
}
#else
inline await_all() { skip }
#endif

proctype rank(byte me) {
    byte operations, t, does, l, batch, done, skipped, rest, p, at, value, number, b, seen_source, seen_value;
    bit waits, more, met, settled, overlaps, asked_once, takes_all;
    seen_source = none;
    operations = ((CONNECTIONS >> me * RANKS) % (1 << RANKS) -> OPERATIONS : 0);
program:
    do
    :: atomic { operations > 0 ->
        operations--;
        if
        :: has_connection(me, 0) -> t = 0
#if RANKS > 1
        :: has_connection(me, 1) -> t = 1
#endif
#if RANKS > 2
        :: has_connection(me, 2) -> t = 2
#endif
        fi;
        if
        :: NOTIFY -> does = 0
        :: PUTS -> does = 1
        :: PUTS && MASKS > 1 -> does = 2
        :: PUTS && MASKS > 1 -> does = 3
        :: DIRECT -> does = only_put + 1
        :: DIRECT && MASKS > 1 -> does = only_put + 2
        :: FLUSH -> does = only_flush
        fi }
        if
        :: does == only_flush -> flush()
        :: else ->
            find_connection();
            find_room();
            if
            :: does < only_put && goes_as_message -> send_message(does, 0); does = 0; goto sent_by_message
            :: else
            fi;
            if
            :: (does & 3) != 0 ->
                find_overlap(does & 3);
                if
                :: overlaps && does > only_put && goes_as_message -> send_message(does & 3, 1); does = 0; goto sent_by_message
                :: overlaps && !(does > only_put && goes_as_message) -> await_delivery()
                :: else
                fi;
                put_directly(does & 3);
                does = does & ~3;
                find_room()
            :: else
            fi;
            if
            :: does < only_put && goes_as_message -> send_message(0, 0)
            :: does < only_put && !goes_as_message -> add_to_counter()
            :: else
            fi;
sent_by_message: skip
        fi;
        atomic { t = 0; does = 0 }
    :: see_counter(0)
    :: see_counter(1)
#if RANKS > 2
    :: see_counter(2)
#endif
    :: count_notifications()
    LOOK
    :: (operations == 0 || BARRIERS && !met) -> break
    od;
    b = (BARRIERS && !met -> device_of(me) : DEVICES);
    await_all();
    cross_barrier();
    if
    :: b != DEVICES -> met = 1; goto program
    :: else
    fi;
    /* After it, everything is there. */
    assert(all_came(0) && all_came(1) && all_came(2))
}

/* --- Stores become visible, in any order -------------------------------------------------------------------------- */

#define TIMES8(m, i) m(i) m(i + 1) m(i + 2) m(i + 3) m(i + 4) m(i + 5) m(i + 6) m(i + 7)
#define TIMES16(m) TIMES8(m, 0) TIMES8(m, 8)

#define LAND_PACKET(i) \
    :: d_step { (i) < RANKS * QUEUES * SLOTS && stored[i] != visible[i] -> \
        visible[i] = stored[i]; \
        s = writer[(i) / SLOTS] - 1; \
        in_flight[s * 2 + reach(s, (i) / SLOTS / QUEUES)]--; \
        s = 0 }
/* A later put is never overwritten by an earlier one. */
#define LAND_DATA(i) \
    :: d_step { (i) < PAIRS * 2 && direct_store[i] != 0 -> \
        assert(window[i] < direct_store[i]); \
        window[i] = direct_store[i]; \
        direct_store[i] = 0; \
        in_flight[(i) / 2 / RANKS * 2 + reach((i) / 2 / RANKS, (i) / 2 % RANKS)]-- } \
    :: d_step { (i) < PAIRS * 2 && placing[i] != 0 -> \
        assert(window[i] < placing[i]); \
        window[i] = placing[i]; \
        placing[i] = 0; \
        placing_now[(i) / 2 % RANKS]-- }
#define LAND_WORDS(i) \
    :: d_step { (i) < PAIRS && credit[i] != credit_stored[i] -> \
        credit[i] = credit_stored[i]; \
        payload_credit[i] = payload_credit_stored[i] } \
    :: d_step { (i) < PAIRS && counter[i] != counter_stored[i] -> \
        counter[i]++; \
        in_flight[(i) / RANKS * 2 + reach((i) / RANKS, (i) % RANKS)]-- }

#if NEAR < QUEUES
#define LAND_ANNOUNCEMENT(t) \
    :: d_step { (t) < RANKS && announced[t] != announced_stored[t] -> announced[t]++ }
#else
#define LAND_ANNOUNCEMENT(t)
#endif

proctype memory() {
    byte s;
end:
    do
    TIMES16(LAND_PACKET)
    TIMES8(LAND_PACKET, 16)
    TIMES16(LAND_DATA)
    LAND_DATA(16)
    LAND_DATA(17)
    TIMES16(LAND_WORDS)
    LAND_ANNOUNCEMENT(0)
    LAND_ANNOUNCEMENT(1)
    LAND_ANNOUNCEMENT(2)
    od
}

init {
    byte i;
    d_step {
        do
        :: i < RANKS * QUEUES * SLOTS -> stored[i] = START; visible[i] = START; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < RANKS * QUEUES -> received[i] = START; payload_received[i] = START; credited[i] = START;
            payload_credited[i] = START; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < PAIRS ->
            credit_stored[i] = START % credit_modulus; credit[i] = credit_stored[i];
            payload_credit_stored[i] = START % CREDITS; payload_credit[i] = payload_credit_stored[i];
            freed[i] = START; payload_freed[i] = START; sent[i] = START; payload_sent[i] = START;
            placed[i] = START; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < RANKS -> near_connection[i] = none; i++
        :: else -> break
        od;
        i = 0
    }
    atomic {
        run memory();
        run rank(0);
#if RANKS > 1
        run rank(1);
#endif
#if RANKS > 2
        run rank(2)
#endif
    }
}
