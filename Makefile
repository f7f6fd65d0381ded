# make demo   build dCUDA, smooth the terrain of data/ on several devices, picture in demo/
# make test   build and run the tests
# make bench  build and run the benchmarks
# make clean
#
# The backend is cuda where there are nvcc and a GPU, else cpu; BACKEND=cpu or BACKEND=cuda says otherwise.
# Everything is built in build/<backend>. Developers use the presets: cmake --list-presets.
BACKEND ?= $(shell command -v nvcc >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU && echo cuda || echo cpu)
GPUS := $(shell nvidia-smi -L 2>/dev/null | grep -c GPU)
PROCESSES ?= $(if $(filter cuda,$(BACKEND)),$(shell echo $$(( $(GPUS) < 4 ? $(GPUS) : 4 ))),4)
BUILD := build/$(BACKEND)

# Ninja where there is one. A build directory keeps the generator that it was made with.
ifneq ($(shell command -v ninja),)
ifeq ($(wildcard $(BUILD)/CMakeCache.txt),)
export CMAKE_GENERATOR := Ninja
endif
endif

.PHONY: demo test bench clean dependencies configure

demo: configure
	cmake --build $(BUILD) --parallel --target stencil dcuda-run
	mkdir -p demo
	$(BUILD)/bin/dcuda-run -n $(PROCESSES) $(BUILD)/bin/stencil \
		--input data/jacksboro_fault_dem.pgm --iterations 500 --output demo/terrain.pgm --png demo/terrain.png --verify

test: configure
	cmake --build $(BUILD) --parallel
	scripts/run_tests.sh $(BUILD)

bench: configure
	cmake --build $(BUILD) --parallel --target bench

configure: dependencies
	cmake --preset $(BACKEND)

dependencies:
	@scripts/install_dependencies.sh $(BACKEND)

clean:
	rm -rf build demo
