# make demo   build dCUDA, smooth the terrain of data/ on several devices, picture in demo/
# make test   build and run the tests
# make install PREFIX=DIR   build without debug information and install, by default in /usr/local
# make bench  build and run the benchmarks
# make bench-all RECORDS=DIR   build, and make all records that documents quote in a folder, by default in build/records
# make docs   build the documentation's site in build/site
# make clean
#
# The backend is cuda where there are nvcc and a GPU, else cpu; BACKEND=cpu or BACKEND=cuda says otherwise.
# What is missing of compilers and libraries is installed; at a terminal make asks before (DEPENDENCIES=ask, yes or no).
# Everything is built in build/<backend>. Developers use the presets: cmake --list-presets.
BACKEND ?= $(shell command -v nvcc >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU && echo cuda || echo cpu)
GPUS := $(shell nvidia-smi -L 2>/dev/null | grep -c GPU)
PROCESSES ?= $(if $(filter cuda,$(BACKEND)),$(shell echo $$(( $(GPUS) < 4 ? $(GPUS) : 4 ))),4)
BUILD := build/$(BACKEND)
# Compilers at a time: no more than cores and memory allow.
JOBS ?= $(shell scripts/build_jobs.sh)
PREFIX ?= /usr/local
# Many files in one, the library in two: a fresh build takes a quarter of the time. Who changes files builds by the presets.
UNITY := -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=30

# $(call generator,FOLDER): Ninja where there is one. A build directory keeps the generator that it was made with.
generator = $(if $(wildcard $(1)/CMakeCache.txt)$(CMAKE_GENERATOR),,$(if $(shell command -v ninja),-G Ninja))

.PHONY: demo test install bench bench-all docs clean dependencies configure

demo: configure
	@echo "Building the library and one program, $(JOBS) compilers at a time: about a minute on two cores."
	cmake --build $(BUILD) --parallel $(JOBS) --target stencil dcuda-run
	mkdir -p demo
	$(BUILD)/bin/dcuda-run -n $(PROCESSES) $(BUILD)/bin/stencil \
		--input data/jacksboro_fault_dem.pgm --iterations 500 --output demo/terrain.pgm --png demo/terrain.png --verify

test: configure
	@echo "Building everything, $(JOBS) compilers at a time, then about 250 tests: 10 to 15 minutes on two cores."
	cmake --build $(BUILD) --parallel $(JOBS)
	scripts/run_tests.sh $(BUILD)

# Examples are installed as sources.
install: dependencies
	@echo "Building library, tools, benchmarks and case studies, $(JOBS) compilers at a time: about three minutes on two cores."
	cmake --preset $(BACKEND) -B $(BUILD)-install $(call generator,$(BUILD)-install) -DCMAKE_BUILD_TYPE=Release \
		-DDCUDA_WERROR=OFF -DDCUDA_BUILD_TESTS=OFF -DDCUDA_BUILD_EXAMPLES=OFF $(UNITY)
	cmake --build $(BUILD)-install --parallel $(JOBS)
	prefix=$$(realpath -m $(PREFIX)) && cmake --install $(BUILD)-install --strip --prefix "$$prefix" >/dev/null && \
		du -sh "$(DESTDIR)$$prefix" && echo "To use it: export PATH=$$prefix/bin:$$prefix/libexec/dcuda:\$$PATH"

bench: configure
	cmake --build $(BUILD) --parallel $(JOBS) --target bench

# How long each record took stands beside them. What the machine lacks is left out.
RECORDS ?= build/records
bench-all: configure
	cmake --build $(BUILD) --parallel $(JOBS)
	cmake --build $(BUILD) --parallel $(JOBS) --target dcuda-bench-unchecked
	benchmarks/bench_all.py $(BUILD) $(RECORDS)

docs:
	scripts/build_docs.sh

configure: dependencies
	cmake --preset $(BACKEND) $(call generator,$(BUILD)) $(UNITY)

dependencies:
	@DEPENDENCIES=$(DEPENDENCIES) scripts/install_dependencies.sh $(BACKEND)

clean:
	rm -rf build demo
