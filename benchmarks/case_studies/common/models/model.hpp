// SPDX-License-Identifier: BSD-3-Clause
// Other ways to run a case study, to compare dCUDA with: --model. The guide of each case study says what each does.
//
// Each library has its own program beside the case study's, so that this one needs none of them (CMake:
// dcuda_add_app_models): start_program_of_model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace common {

// A case study's work on this process's device, done in one of these ways. Every process has one.
class model {
public:
    virtual ~model() = default;

    // Does the work that is timed. Collective. Milliseconds that it took, of the slowest device.
    virtual double run() = 0;

    // Makes the same exchanges without the kernels. Collective. Milliseconds; 0 if nothing is exchanged, or if the
    // model has no exchanges apart from its kernels.
    virtual double exchange_alone() = 0;

    // What brings data from device to device, in words.
    virtual std::string describe() const = 0;
};

// Why a program has nothing of that name, and the cure.
std::string why_missing(const std::string& name);

// Objects that can be made by name, by programs that have the file which says how.
template <class Made, class Setting>
class registry {
public:
    using maker = std::function<std::unique_ptr<Made>(const Setting&)>;

    // How to make it: a constant in the file that knows.
    struct entry {
        entry(const std::string& name, maker make) { here()[name] = std::move(make); }
    };

    // Throws std::runtime_error with the reason if this program cannot have it.
    static std::unique_ptr<Made> make(const std::string& name, const Setting& given) {
        const auto found = here().find(name);
        if (found == here().end()) throw std::runtime_error(why_missing(name));
        return found->second(given);
    }

private:
    static std::map<std::string, maker>& here() {
        static std::map<std::string, maker> makers; // made by the first entry
        return makers;
    }
};

// The models of a case study. Setting: what they work on.
template <class Setting>
using models = registry<model, Setting>;

// First in main: if the command line of the case study `name` asks by that option for a model of a library, whose
// program is beside this one, that takes this one's place. Else nothing happens. `otherwise`: the model that it has
// without the option.
void start_program_of_model(const std::string& name, int argc, char** argv, const char* option = "--model",
                            const std::string& otherwise = {});

// The value of an option of the command line, if it is there.
std::string value_of(std::string_view option, int argc, char** argv);

} // namespace common
