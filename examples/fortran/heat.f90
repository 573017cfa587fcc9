! Heat on a square plate, by finite differences; keeps the contract (docs/contract.md) by unbroken.f90.
!
!   gfortran -O2 -o heat unbroken.f90 heat.f90
!   UNBROKEN_GOAL=20000 ./heat        without unbroken; writes heat.csv, a row a hundred steps
!
! Exit code 0: done; 85: told to leave, saved.  Same compiler, flags and machine: same bytes, whole or in pieces.
program heat
  use unbroken
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  integer, parameter :: size = 200
  real(real64) :: plate(size, size)
  integer(int64) :: step, goal
  integer :: table
  logical :: stop_now
  character(20) :: number

  number = told("GOAL")
  goal = 20000
  if (number /= "") read (number, *) goal
  if (told("RESUME") == "") then
    step = 0
    plate = 0
    plate(:, 1) = 1 ! one hot edge
  else
    call read_state(told("RESUME"))
  end if

  open (newunit=table, file="heat.csv", status="replace", action="write")
  write (table, "(a)") "step,mean"
  stop_now = .false.
  do while (step < goal .and. .not. stop_now)
    call diffuse(int(min(100_int64, goal - step)))
    write (table, "(i0, a, es23.16)") step, ",", sum(plate) / size**2
    flush (table) ! a state counts once a later row is in the file
    stop_now = must_stop()
    if (must_save(stop_now .or. step >= goal)) then
      call write_state(draft())
      call commit(step, goal)
    end if
  end do
  close (table)
  if (step < goal) stop 85, quiet=.true.

contains

  subroutine diffuse(steps)
    integer, intent(in) :: steps
    integer :: n
    do n = 1, steps
      plate(2:size-1, 2:size-1) = plate(2:size-1, 2:size-1) + 0.2_real64 * ( &
        plate(1:size-2, 2:size-1) + plate(3:size, 2:size-1) + plate(2:size-1, 1:size-2) + &
        plate(2:size-1, 3:size) - 4 * plate(2:size-1, 2:size-1))
    end do
    step = step + steps
  end subroutine

  subroutine write_state(folder)
    character(*), intent(in) :: folder
    integer :: file
    open (newunit=file, file=folder // "/state.bin", form="unformatted", access="stream", status="new")
    write (file) step, plate
    close (file)
  end subroutine

  subroutine read_state(folder)
    character(*), intent(in) :: folder
    integer :: file
    open (newunit=file, file=folder // "/state.bin", form="unformatted", access="stream", status="old", action="read")
    read (file) step, plate
    close (file)
  end subroutine
end program
